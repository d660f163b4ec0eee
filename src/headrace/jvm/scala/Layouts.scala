package org.apache.spark.sql.headrace

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.catalyst.expressions.{Cast, Expression, Literal, Multiply}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, RepartitionByExpression}
import org.apache.spark.sql.types.LongType

/** A start that sets no number of partitions goes on with that of the state, whatever the machine's default is. */
object Layouts {
  private val GroupBits = 10
  private val RunsKept = 1000
  private val numbers = new ConcurrentHashMap[(String, String), Integer]()

  /** The number of partitions of this run; one request per run. */
  def number(settings: Settings): Int =
    Checkpoints.running.filterNot(_ => settings.rescales).fold(settings.partitions) { case (query, run) =>
      if (numbers.size > RunsKept) numbers.clear()
      numbers.computeIfAbsent((run, settings.name), _ => {
        val request = Json.empty.put("query", query).put("operator", settings.name)
        request.put("partitions", settings.partitions).put("rescales", false)
        Coordinator.ask(settings, "partitions", request).get("partitions").asInt
      })
    }

  /** The operator's input in another number of partitions. Spark may have pruned an input without rows. */
  def resized(plan: LogicalPlan, settings: Settings, number: Int): LogicalPlan = plan match {
    case shuffle @ RepartitionByExpression(_, packets: PacketNode, Some(count), _) if count != number =>
      val partition = scaled(packets.partition, count, number, settings)
      shuffle.copy(child = packets.copy(partition = partition, partitions = number), optNumPartitions = Some(number))
    case other => other
  }

  private def scaled(partition: Expression, from: Int, to: Int, settings: Settings): Expression = partition match {
    case _: Literal => Literal((settings.keylessGroup * to) >> GroupBits) // of an operator without keys
    case other =>
      val changed = other.transform {
        case Multiply(group, Literal(count: Long, LongType), mode) if count == from => Multiply(group, Literal(to.toLong), mode)
        case Multiply(group, Cast(Literal(count: Int, _), LongType, _, _), mode) if count == from =>
          Multiply(group, Literal(to.toLong), mode)
      }
      if (changed == other) throw new IllegalStateException(s"operator ${settings.name}: no number of partitions in $other")
      changed
  }
}
