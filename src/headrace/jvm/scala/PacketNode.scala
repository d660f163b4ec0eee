package org.apache.spark.sql.headrace

import org.apache.spark.sql.catalyst.analysis.MultiInstanceRelation
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeReference, AttributeSet}
import org.apache.spark.sql.catalyst.expressions.{DirectShufflePartitionID, Expression, Literal}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, RepartitionByExpression, UnaryNode}
import org.apache.spark.sql.types.{BinaryType, IntegerType}

/**
 * Rows on their way into a shuffle, packed: each output row is a partition's number and a packet of its rows.
 * All columns of the child are referenced, or pruning would drop them.
 */
case class PacketNode(
    child: LogicalPlan, partition: Expression, partitions: Int, limits: PacketLimits, packed: Seq[Attribute])
    extends UnaryNode
    with MultiInstanceRelation {
  override def output: Seq[Attribute] = packed
  override protected def stringArgs: Iterator[Any] = Iterator(partition, partitions, packed)
  override def newInstance(): LogicalPlan = copy(packed = packed.map(_.newInstance()))
  @transient override lazy val references: AttributeSet = child.outputSet
  override def producedAttributes: AttributeSet = AttributeSet(packed)
  override def maxRows: Option[Long] = None
  override protected def withNewChildInternal(newChild: LogicalPlan): PacketNode = copy(child = newChild)
}

/** A packet ends at this many rows or bytes; all packets of a task together end at the total. */
case class PacketLimits(rows: Int, bytes: Long, totalBytes: Long)

object PacketNode {
  /** The plan with packets in place of rows: `repartitionById` at its top shuffles packets. */
  def over(plan: LogicalPlan, limits: PacketLimits): LogicalPlan = plan match {
    case RepartitionByExpression(Seq(DirectShufflePartitionID(partition)), child, Some(count), size) =>
      val packets = of(child, partition, count, limits)
      RepartitionByExpression(Seq(DirectShufflePartitionID(packets.output.head)), packets, Some(count), size)
    case rows => of(rows, Literal(0), 1, limits)
  }

  private def of(child: LogicalPlan, partition: Expression, count: Int, limits: PacketLimits): PacketNode =
    PacketNode(child, partition, count, limits, Seq(
      AttributeReference("partition", IntegerType, nullable = false)(),
      AttributeReference("packet", BinaryType, nullable = false)()))
}
