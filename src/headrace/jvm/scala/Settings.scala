package org.apache.spark.sql.headrace

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.{ArrayNode, ObjectNode}

import scala.jdk.CollectionConverters._

/**
 * One operator as the driver's Python described it, in JSON. Equality and text go by name and uid, so that no
 * plan, log or user interface shows the secret.
 */
final class Settings(val text: String) extends Serializable {
  @transient private lazy val root: JsonNode = Json.read(text)

  def name: String = root.get("name").asText
  def uid: String = root.get("uid").asText
  def partitions: Int = root.get("partitions").asInt
  /** Whether the user set the number of partitions. */
  def rescales: Boolean = operator.get("rescales").asBoolean
  /** The hash group of all rows, where the operator has no keys. */
  def keylessGroup: Int = root.get("keyless_group").asInt
  def withPartitions(number: Int): Settings =
    if (number == partitions) this else new Settings(Json.text(root.deepCopy[ObjectNode]().put("partitions", number)))
  def nodes: Seq[String] = root.get("nodes").elements.asScala.map(_.asText).toSeq
  /** Operators below that have a watermark, and how far behind it each may still emit. */
  def upstream: Seq[(String, Long)] =
    operator.get("times").get("upstream").elements.asScala.map(one => one.get(0).asText -> one.get(1).asLong).toSeq

  /** How far behind its own watermark this operator may still emit. */
  def holdMs: Long = root.get("hold_ms").asLong
  def windowed: Boolean = root.get("windowed").asBoolean
  def timing: String = root.get("timing").asText
  def clock: String = root.get("clock").asText
  def coordinator: String = root.get("coordinator").asText
  def secret: String = root.get("secret").asText
  def watchMs: Long = root.get("watch_ms").asLong
  def hungMs: Long = root.get("hung_ms").asLong
  def packetLimits: PacketLimits = {
    val limits = root.get("packets")
    PacketLimits(limits.get("rows").asInt, limits.get("bytes").asLong, limits.get("total_bytes").asLong)
  }
  def python: String = root.get("python").asText
  def hostPer: String = root.get("host_per").asText
  def pythonFiles: Seq[String] = root.get("python_files").elements.asScala.map(_.asText).toSeq
  def environment: Map[String, String] =
    root.get("environment").properties.asScala.map(entry => entry.getKey -> entry.getValue.asText).toMap

  /** The state host's settings, for the given machine. */
  def host(machine: String): ObjectNode =
    root.get("host").deepCopy[ObjectNode]().put("machine", machine).put("secret", secret)

  /** What the coordinator reads of the operator when a batch begins. */
  def operator: JsonNode = root.get("operator")

  override def equals(other: Any): Boolean = other match {
    case that: Settings => that.uid == uid && that.name == name
    case _ => false
  }
  override def hashCode: Int = uid.hashCode
  override def toString: String = name
}

/** JSON with the library that Spark ships. */
object Json {
  private val mapper = new ObjectMapper()
  def read(text: String): JsonNode = mapper.readTree(text)
  def bytes(node: JsonNode): Array[Byte] = mapper.writeValueAsBytes(node)
  def text(node: JsonNode): String = mapper.writeValueAsString(node)
  def empty: ObjectNode = mapper.createObjectNode()
  def fill(array: ArrayNode, values: Seq[Option[Long]]): Unit =
    values.foreach { case Some(value) => array.add(value); case None => array.addNull() }
}
