package org.apache.spark.sql.headrace

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.execution.streaming.operators.stateful.{StatefulOperatorCustomMetric, StatefulOperatorCustomSumMetric}

/** A host's summary as Spark's metrics of a stateful operator, and those that only Headrace has. */
object Metrics {
  private val own: Seq[(String, String, String)] = Seq(
    ("headraceRowsIn", "rows_in", "rows in"),
    ("headraceRowsOut", "rows_out", "rows out"),
    ("headraceStateBytes", "state_bytes", "bytes of the version's files"),
    ("headraceWrittenBytes", "written_bytes", "bytes written"),
    ("headraceSealMs", "seal_ms", "time to seal"),
    ("headracePublishMs", "publish_ms", "time to publish"),
    ("headraceWaitPreviousMs", "wait_previous_ms", "wait for the version before"))

  val custom: Seq[StatefulOperatorCustomMetric] =
    own.map { case (name, _, text) => StatefulOperatorCustomSumMetric(name, text) }

  def of(summary: JsonNode): Seq[(String, Long)] = {
    def number(name: String): Long = math.round(summary.get(name).asDouble)
    own.map { case (name, field, _) => name -> number(field) } ++ Seq(
      "numOutputRows" -> number("rows_out"),
      "numRowsDroppedByWatermark" -> number("late_rows"),
      "numTotalStateRows" -> number("keys"),
      "numUpdatedStateRows" -> (number("rows_in") - number("late_rows")),
      "allUpdatesTimeMs" -> number("apply_ms"),
      "allRemovalsTimeMs" -> number("finish_ms"),
      "commitTimeMs" -> number("critical_ms"),
      "stateMemory" -> number("memory_bytes"),
      "numStateStoreInstances" -> 1L)
  }
}
