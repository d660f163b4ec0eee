package org.apache.spark.sql.headrace

import java.io.ObjectOutputStream

import com.fasterxml.jackson.databind.JsonNode

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.execution.SparkPlan

/**
 * The event time that counts for each watermark node below, in this batch. Spark writes a stage's tasks when
 * the stages below are complete, so the values are read at that moment, on the driver. It may write them
 * before, to look at them; those are not run.
 */
class EventTimes(
    @transient private val plan: SparkPlan,
    @transient private val settings: Settings,
    @transient private val ticket: JsonNode)
    extends Serializable {
  private var countedMs: Array[Option[Long]] = Array.empty

  /** By node, in the order of the operator's watermarks; None where a node saw no row. */
  def seenMs: Seq[Option[Long]] = countedMs.toSeq

  private def writeObject(out: ObjectOutputStream): Unit = {
    if (plan != null && settings.nodes.nonEmpty) {
      val seen = Internals.eventTimes(Upstream.direct(plan))
      val direct = settings.nodes.map(node => seen.collect { case (`node`, at) => at }.maxOption)
      val below = Upstream.operators(plan)
      countedMs = (
        if (settings.upstream.isEmpty) direct
        else if (below.values.exists(_.summaries.value.isEmpty)) direct.map(_ => None)
        else behindUpstream(direct, below)).toArray
    }
    out.defaultWriteObject()
  }

  /** The coordinator holds the times back behind the operators below, whose tasks have ended. */
  private def behindUpstream(direct: Seq[Option[Long]], below: Map[String, HostExec]): Seq[Option[Long]] = {
    val request = Json.empty
      .put("query", ticket.get("query").asText)
      .put("run", ticket.get("start").asText)
      .put("batch", ticket.get("batch").asLong)
      .put("operator", settings.name)
    Json.fill(request.putArray("direct_ms"), direct)
    val known = request.putObject("upstream_ms")
    below.foreach {
      case (name, exec) => Upstream.watermarkMs(exec).fold(known.putNull(name))(known.put(name, _))
    }
    val answer = Coordinator.ask(settings, "times", request).get("seen_ms")
    answer.elements.asScala.map(at => if (at.isNull) None else Some(at.asLong)).toSeq
  }
}
