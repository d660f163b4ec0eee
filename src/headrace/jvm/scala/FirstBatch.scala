package org.apache.spark.sql.headrace

import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnaryNode}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{LocalTableScanExec, SparkPlan}

/**
 * Rows of a batch DataFrame as a part of the stream: they are read in the query's first batch, and no plan of
 * a later batch has them.
 */
case class FirstBatchNode(child: LogicalPlan) extends UnaryNode {
  override def output: Seq[Attribute] = child.output
  override def isStreaming: Boolean = true
  override def maxRows: Option[Long] = None
  override protected def withNewChildInternal(newChild: LogicalPlan): FirstBatchNode = copy(child = newChild)
}

object FirstBatch {
  def isNow: Boolean = Checkpoints.batchOf(SparkSession.active.sparkContext).contains(0L)

  def empty(output: Seq[Attribute]): SparkPlan = LocalTableScanExec(output, Nil, None)
}
