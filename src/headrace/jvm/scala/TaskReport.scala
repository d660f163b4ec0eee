package org.apache.spark.sql.headrace

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.util.CollectionAccumulator

/** Takes what the host did for a partition, in the task; accumulators bring it to the driver. */
class TaskReport(
    counters: Map[String, SQLMetric],
    summaries: CollectionAccumulator[String],
    recordId: (Int, String) => Unit)
    extends Serializable {

  def add(partition: Int, attempt: Long, machine: String, executor: String, summary: JsonNode): Unit = {
    val line = Json.empty.put("attempt", attempt).put("machine", machine).put("executor", executor)
    line.set[JsonNode]("summary", summary)
    summaries.add(Json.text(line))
    Metrics.of(summary).foreach { case (name, value) => counters.get(name).foreach(_ += value) }
    recordId(partition, summary.get("state_id").asText)
  }
}
