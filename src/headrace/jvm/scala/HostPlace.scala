package org.apache.spark.sql.headrace

import java.io.IOException
import java.nio.channels.SocketChannel

import com.fasterxml.jackson.databind.JsonNode

/** Where a partition's host listens: this machine's Unix socket, or another machine's TCP door. */
class HostPlace(settings: Settings, ticket: JsonNode, private var owner: JsonNode, partition: Int) {
  private val base = owner.get("base")
  private var door = "" // of this machine's host, once a connection was opened
  private val local = Hosts.machine(settings.hostPer)

  def machine: String = if (isLocal) local else owner.get("machine").asText

  def isLocal: Boolean = owner.get("machine").isNull || owner.get("machine").asText == local

  /** An open connection. A host that does not answer is located once more. */
  def connect(): SocketChannel =
    if (isLocal) {
      door = Hosts.door(settings)
      try Frames.connect(door)
      catch {
        case _: IOException =>
          Hosts.drop(settings, door)
          door = Hosts.door(settings)
          Frames.connect(door)
      }
    } else {
      try reach()
      catch {
        case _: IOException =>
          owner = moved()
          if (isLocal) Frames.connect(Hosts.door(settings)) else reach()
      }
    }

  /** The host of a connection that broke, with its process if that hung and was ended. */
  def name: String =
    Hosts.endedProcess(door).fold(s"the state host of $machine")(pid =>
      s"the state host of $machine, process $pid, did not answer for ${settings.hungMs / 1000} s, was ended, and")

  private def reach(): SocketChannel = {
    val door = owner.get("door")
    if (door.isNull) throw new IOException(s"the state host of $machine has no address")
    Frames.connect(door.asText)
  }

  /** The coordinator names another owner, unless a heartbeat of the one before arrives. */
  private def moved(): JsonNode = {
    val request = Json.empty
      .put("query", ticket.get("query").asText)
      .put("operator", settings.name)
      .put("partition", partition)
      .put("machine", local)
      .put("avoid", owner.get("machine").asText)
    request.set[JsonNode]("base", base)
    Coordinator.ask(settings, "place", request)
  }
}
