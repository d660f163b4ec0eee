package org.apache.spark.sql.headrace

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.types.StructType

/** The operator in a checkpoint that began as a stateless plan: Spark continues to plan it as one. */
case class PlainExec(input: StructType, results: Seq[Attribute], settings: Settings, child: SparkPlan) extends HostExec {
  override protected def batchRequest(): ObjectNode = {
    val place = Checkpoints.place(sparkContext, settings.name)
    Json.empty.put("query", place.query).put("run", place.run).put("batch", place.batch).put("node", id).put("stateful", false)
  }
  override protected def report: TaskReport =
    new PlainReport(settings, Checkpoints.place(sparkContext, settings.name), summaries)
  override protected def watermarkMs(begun: JsonNode): Option[Long] = None
  override protected def withNewChildInternal(newChild: SparkPlan): PlainExec = copy(child = newChild)
}

/** A stateless operator has no progress in Spark, so each task sends its own summary. */
class PlainReport(settings: Settings, place: Place, summaries: org.apache.spark.util.CollectionAccumulator[String])
    extends TaskReport(Map.empty, summaries, (_, _) => ()) {
  override def add(partition: Int, attempt: Long, machine: String, executor: String, summary: JsonNode): Unit = {
    val line = Json.empty.put("attempt", attempt).put("machine", machine).put("executor", executor)
    line.set[JsonNode]("summary", summary)
    val request = Json.empty
      .put("query", place.query).put("run", place.run).put("batch", place.batch).put("operator", settings.name)
    request.putArray("tasks").add(line)
    Coordinator.ask(settings, "ended", request)
  }
}
