package org.apache.spark.sql.headrace

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSet, Expression, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}

/** Packs rows by partition before the shuffle, so that a shuffle moves few large rows in place of many small ones. */
case class PacketExec(
    child: SparkPlan, partition: Expression, partitions: Int, limits: PacketLimits, packed: Seq[Attribute])
    extends UnaryExecNode {
  override def output: Seq[Attribute] = packed
  override def producedAttributes: AttributeSet = AttributeSet(packed)
  override protected def stringArgs: Iterator[Any] = Iterator(partitions, packed)

  override protected def doExecute(): RDD[InternalRow] = {
    val (number, below, schema) = (partition, child.output, child.schema)
    val (count, bounds) = (partitions, limits)
    child.execute().mapPartitionsInternal { rows =>
      val numberOf = UnsafeProjection.create(Seq(number), below)
      val unsafe = UnsafeProjection.create(below, below)
      def words(row: InternalRow): UnsafeRow = row match {
        case already: UnsafeRow => already
        case other => unsafe(other)
      }
      new Packer(rows.map(words), row => numberOf(row).getInt(0), count, schema, bounds)
    }
  }
  override protected def withNewChildInternal(newChild: SparkPlan): PacketExec = copy(child = newChild)
}
