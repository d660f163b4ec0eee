package org.apache.spark.sql.headrace

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.TaskContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec

/**
 * The lookahead before the shuffle. A batch that needs no hints from it has no such node: the node is put under the
 * operator's exchange when the batch begins.
 */
object Tap {
  val name = "stage"

  /** The operator's input, with a tap under its exchange for a batch whose ticket has hints on. */
  def over(plan: SparkPlan, settings: Settings, begun: JsonNode): SparkPlan = plan match {
    case exchange: ShuffleExchangeExec if begun.get("ticket").path("lookahead").asText == name =>
      val below = exchange.child match {
        case packets: PacketExec => packets.withNewChildren(Seq(tapped(packets.child, settings, begun)))
        case rows => tapped(rows, settings, begun)
      }
      exchange.withNewChildren(Seq(below))
    case other => other
  }

  private def tapped(rows: SparkPlan, settings: Settings, begun: JsonNode): SparkPlan =
    of(rows, settings, begun)

  /** The rows, which give hints for the operator on their way. */
  def of(rows: SparkPlan, settings: Settings, begun: JsonNode): TapExec =
    TapExec(rows, settings, headerText(begun, settings, rows), begun.path("hot").asInt(HotFilter.threshold))

  private def headerText(begun: JsonNode, settings: Settings, rows: SparkPlan): String =
    Json.text(header(begun, settings, isTimed(rows)))

  private def isTimed(plan: SparkPlan): Boolean = plan.output.exists(_.name == "__time")

  /** The header of each sender: one for each side of a join. */
  def headers(text: String, sided: Boolean): IndexedSeq[String] =
    if (!sided) IndexedSeq(text)
    else IndexedSeq(0, 1).map(side => Json.text(Json.read(text).asInstanceOf[ObjectNode].put("side", side)))

  /** What a host must know of the hints: whose they are, and where partitions of other machines are. */
  def header(begun: JsonNode, settings: Settings, timed: Boolean): ObjectNode = {
    val ticket = begun.get("ticket")
    val header = Json.empty
      .put("query", ticket.get("query").asText)
      .put("operator", settings.name)
      .put("partitions", settings.partitions)
      .put("timed", timed)
    val doors = header.putArray("doors")
    begun.get("partitions").forEach(owner => doors.add(owner.get("door")))
    header
  }
}

/** Passes rows on, and sends the hashes of their keys to this machine's state host. */
case class TapExec(child: SparkPlan, settings: Settings, header: String, hot: Int) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override protected def stringArgs: Iterator[Any] = Iterator(settings.name)

  override protected def doExecute(): RDD[InternalRow] = {
    val (mine, text, threshold) = (settings, header, hot)
    val Seq(hash, time, side) = Seq("__hash", "__time", "__side").map(name => output.indexWhere(_.name == name))
    child.execute().mapPartitions { rows =>
      val timed = Json.read(text).get("timed").asBoolean
      val senders = Tap.headers(text, sided = side >= 0).map(new HintSender(mine, _, timed, threshold))
      Option(TaskContext.get()).foreach(_.addTaskCompletionListener[Unit](_ => senders.foreach(_.close())))
      rows.map { row =>
        val at = if (side < 0) 0 else row.getByte(side).toInt
        if (at < senders.length) // a row with a null key has a larger side, and matches nothing
          senders(at).see(row.getLong(hash), if (time < 0 || row.isNullAt(time)) 0L else row.getLong(time))
        row
      }
    }
  }

  override protected def withNewChildInternal(newChild: SparkPlan): TapExec = copy(child = newChild)
}
