package org.apache.spark.sql.headrace

import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSet}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnaryNode}

/**
 * The input of user code whose timers follow a clock. It changes no row. Spark counts it as a stateful
 * operator, so batches without input run where a timer may be due, and operators above get its watermark.
 */
case class PacedNode(child: LogicalPlan, settings: Settings) extends UnaryNode {
  override def output: Seq[Attribute] = child.output
  @transient override lazy val references: AttributeSet = child.outputSet
  override def isStateful: Boolean = child.isStreaming
  override def maxRows: Option[Long] = None
  override protected def withNewChildInternal(newChild: LogicalPlan): PacedNode = copy(child = newChild)
}
