package org.apache.spark.sql.headrace

import org.apache.spark.TaskContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnaryNode}
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}

/** A node that changes nothing: its query fails where nodes of this jar cannot be planned or run. */
case class ProbeNode(child: LogicalPlan) extends UnaryNode {
  override def output: Seq[Attribute] = child.output
  override protected def withNewChildInternal(newChild: LogicalPlan): ProbeNode = copy(child = newChild)
}

case class ProbeExec(child: SparkPlan) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override protected def doExecute(): RDD[InternalRow] =
    new PlacedRdd(child.execute(), ProbeTask, Map.empty)
  override protected def withNewChildInternal(newChild: SparkPlan): ProbeExec = copy(child = newChild)
}

/** Links what a real task links on an executor. */
object ProbeTask extends PartitionTask {
  override def run(partition: Int, context: TaskContext, rows: Iterator[InternalRow]): Iterator[InternalRow] = {
    Internals.allocator("probe").close()
    rows
  }
}
