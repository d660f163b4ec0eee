package org.apache.spark.sql.headrace

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.{SparkEnv, TaskContext}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.types.StructType

/** What one task of a batch needs; made on the driver, sent with the tasks. */
class HostTask(
    settings: Settings,
    begun: String,
    watermarkMs: Option[Long],
    times: EventTimes,
    rowSchema: StructType,
    results: Seq[Attribute],
    zone: String,
    report: TaskReport,
    links: Seq[String])
    extends PartitionTask {

  override def run(partition: Int, context: TaskContext, rows: Iterator[InternalRow]): Iterator[InternalRow] = {
    val plan = Json.read(begun)
    val owner = plan.get("partitions").get(partition)
    val place = new HostPlace(settings, plan.get("ticket"), owner, partition)
    val header = headerOf(plan.get("ticket"), owner, partition, context.taskAttemptId())
    val exchange = new HostExchange(settings, place, header, Internals.arrowSchema(rowSchema, zone), results, context, rows)
    context.addTaskCompletionListener[Unit](_ => exchange.close())
    exchange.rows { summary =>
      val nearest = if (place.isLocal) executor else ""
      report.add(partition, context.taskAttemptId(), place.machine, nearest, summary)
    }
  }

  private def headerOf(ticket: JsonNode, owner: JsonNode, partition: Int, attempt: Long): ObjectNode = {
    val mine = ticket.deepCopy[ObjectNode]().put("partition", partition).put("attempt", attempt)
    for (name <- Seq("base", "base_attempt", "base_run")) mine.set[JsonNode](name, owner.get(name))
    watermarkMs.foreach(mine.put("watermark_ms", _))
    val above = mine.putArray("links")
    links.foreach(link => above.add(Json.read(link)))
    val header = Json.empty.put("secret", settings.secret)
    header.set[JsonNode]("ticket", mine)
    Json.fill(header.putArray("seen_ms"), times.seenMs)
    header
  }

  /** This executor, as preferred locations of tasks name it. */
  private def executor: String = {
    val manager = SparkEnv.get.blockManager.blockManagerId
    s"executor_${manager.host}_${manager.executorId}"
  }
}
