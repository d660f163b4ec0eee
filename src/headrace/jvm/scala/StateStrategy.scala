package org.apache.spark.sql.headrace

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}

/** Plans the nodes of this jar. In a checkpoint that began as a stateless plan, they stay stateless. */
class StateStrategy extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case ProbeNode(child) => ProbeExec(planLater(child)) :: Nil
    case FirstBatchNode(child) => (if (FirstBatch.isNow) planLater(child) else FirstBatch.empty(plan.output)) :: Nil
    case PacedNode(child, settings) if Checkpoints.isPlain(settings.name) => planLater(child) :: Nil
    case PacedNode(child, settings) => PacedExec(settings, planLater(child), None, None, None) :: Nil
    case PacketNode(child, partition, partitions, limits, packed) =>
      PacketExec(planLater(child), partition, partitions, limits, packed) :: Nil
    case StateNode(child, input, results, described) =>
      val number = Layouts.number(described)
      val (rows, settings) = (planLater(Layouts.resized(child, described, number)), described.withPartitions(number))
      if (Checkpoints.isPlain(settings.name)) PlainExec(input, results, settings, rows) :: Nil
      else StatefulExec(input, results, settings, rows, None, None, None) :: Nil
    case _ => Nil
  }
}
