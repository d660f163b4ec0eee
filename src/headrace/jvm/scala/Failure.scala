package org.apache.spark.sql.headrace

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.SparkException

/**
 * An error of Headrace: its class, message and hint as Python has them. It is a class of Spark's own, because the
 * driver reads the errors of tasks with a class loader that lacks this jar.
 */
object Failure {
  def apply(kind: String, message: String, hint: String): SparkException =
    new SparkException(s"$kind: $message" + (if (hint.isEmpty) "" else s"\n  → $hint"))

  /** The error in a frame, as `HeadraceError.to_json` writes it. */
  def of(error: JsonNode): SparkException =
    apply(error.get("error").asText, error.get("message").asText, error.get("hint").asText)
}
