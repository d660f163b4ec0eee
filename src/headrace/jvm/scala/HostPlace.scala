package org.apache.spark.sql.headrace

import java.io.IOException
import java.nio.channels.SocketChannel

import com.fasterxml.jackson.databind.JsonNode

/** Where a partition's host listens: this machine's Unix socket, or another machine's TCP door. */
class HostPlace(settings: Settings, ticket: JsonNode, private var owner: JsonNode, partition: Int) {
  private val here = Hosts.machine(settings.hostPer)

  def machine: String = if (isHere) here else owner.get("machine").asText

  private def isHere: Boolean = owner.get("machine").isNull || owner.get("machine").asText == here

  /** An open connection. A host that does not answer is looked for once more. */
  def connect(): SocketChannel =
    if (isHere) {
      val door = Hosts.door(settings)
      try Frames.connect(door)
      catch {
        case _: IOException =>
          Hosts.forget(settings, door)
          Frames.connect(Hosts.door(settings))
      }
    } else {
      try Frames.connect(owner.get("door").asText)
      catch {
        case _: IOException =>
          owner = moved()
          if (isHere) Frames.connect(Hosts.door(settings)) else Frames.connect(owner.get("door").asText)
      }
    }

  /** The coordinator names another owner, unless the one before is heard of again. */
  private def moved(): JsonNode = {
    val request = Json.empty
      .put("query", ticket.get("query").asText)
      .put("operator", settings.name)
      .put("partition", partition)
      .put("machine", here)
      .put("avoid", owner.get("machine").asText)
    Coordinator.ask(settings, "place", request)
  }
}
