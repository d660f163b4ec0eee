package org.apache.spark.sql.headrace

import java.io.IOException

import com.fasterxml.jackson.databind.JsonNode

/** A question to the coordinator in the driver's Python: one connection, one frame each way. */
object Coordinator {
  def ask(settings: Settings, action: String, request: JsonNode): JsonNode = {
    val question = Json.empty.put("secret", settings.secret).put("action", action)
    question.set[JsonNode]("request", request)
    val answer =
      try {
        val channel = Frames.connect(settings.coordinator)
        try { Frames.send(channel, question); Frames.receive(channel) }
        finally channel.close()
      } catch {
        case error: IOException =>
          throw Failure(
            "HostUnavailable",
            s"the driver at ${settings.coordinator} did not answer: $error",
            "a firewall between executor and driver, or a driver that has ended")
      }
    if (answer.has("error")) throw Failure.of(answer.get("error"))
    answer.get("answer")
  }
}
