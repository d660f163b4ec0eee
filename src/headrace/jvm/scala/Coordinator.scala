package org.apache.spark.sql.headrace

import java.io.IOException

import com.fasterxml.jackson.databind.JsonNode

/** Requests to the coordinator in the driver's Python: one connection and one frame each way for each. */
object Coordinator {
  def ask(settings: Settings, action: String, fields: JsonNode): JsonNode = {
    val frame = Json.empty.put("secret", settings.secret).put("action", action)
    frame.set[JsonNode]("request", fields)
    val answer =
      try {
        val channel = Frames.connect(settings.coordinator)
        try { Frames.send(channel, frame); Frames.receive(channel) }
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
