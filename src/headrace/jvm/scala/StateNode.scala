package org.apache.spark.sql.headrace

import org.apache.spark.sql.catalyst.analysis.MultiInstanceRelation
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSet}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnaryNode}
import org.apache.spark.sql.types.StructType

/**
 * The operator in a logical plan, over packets of rows of the schema `input`. All columns of its child are
 * referenced, or pruning would drop them; a self-join makes a new instance with new output attributes.
 */
case class StateNode(child: LogicalPlan, input: StructType, results: Seq[Attribute], settings: Settings)
    extends UnaryNode
    with MultiInstanceRelation {
  def operatorName: String = settings.name
  def operatorUid: String = settings.uid
  override def output: Seq[Attribute] = results
  override protected def stringArgs: Iterator[Any] = Iterator(settings.name, results)
  override def newInstance(): LogicalPlan = copy(results = results.map(_.newInstance()))
  @transient override lazy val references: AttributeSet = child.outputSet
  override def producedAttributes: AttributeSet = AttributeSet(results)
  override def isStateful: Boolean = child.isStreaming
  override def maxRows: Option[Long] = None
  override protected def withNewChildInternal(newChild: LogicalPlan): StateNode = copy(child = newChild)
}
