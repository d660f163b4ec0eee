package org.apache.spark.sql.headrace

import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo

/** An exec that gets its batch and its watermarks from Spark's rules for stateful operators. */
trait FilledExec extends SparkPlan {
  def child: SparkPlan
  def stateInfo: Option[StatefulOperatorStateInfo]
  def lateMs: Option[Long]
  def evictMs: Option[Long]
  def withFilled(info: Option[StatefulOperatorStateInfo], late: Option[Long], evict: Option[Long]): SparkPlan
}
