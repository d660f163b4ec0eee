package org.apache.spark.sql.headrace

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter

/** What stands below an operator in a batch's plan. The rule is in docs/design/0005-watermarks.md. */
object Upstream {
  /** The nodes that feed an operator without another Headrace operator between. */
  def direct(plan: SparkPlan): Seq[SparkPlan] = plan match {
    case _: HostExec => Nil
    case task if Internals.isPythonTask(task) => Nil
    case reused: ReusedExchangeExec => direct(reused.child)
    case node => node +: node.children.flatMap(direct)
  }

  /** The operators of this jar below, by name. */
  def operators(plan: SparkPlan): Map[String, HostExec] =
    Facts.every(plan).collect { case exec: HostExec => exec.settings.name -> exec }.toMap

  /** The watermark in this batch of an operator whose tasks have ended; None while any has none. */
  def watermarkMs(exec: HostExec): Option[Long] = {
    val newest = exec.summaries.value.asScala.map(Json.read(_).get("summary"))
      .map(summary => summary.get("partition").asInt -> summary.get("watermark_ms")).toMap.values
    if (newest.isEmpty || newest.exists(_.isNull)) None else Some(newest.map(_.asLong).min)
  }

  /**
   * Spark's watermark for an operator, less what operators below may still emit behind theirs. Where an operator
   * of Spark stands between, Spark has the output watermark of the lower one in its own.
   */
  def evictMs(exec: StatefulExec): Option[Long] = {
    val holds = exec.settings.upstream.toMap
    val (lower, others) = stateful(exec.child).partition(_.isInstanceOf[StatefulExec])
    val bounds = lower.collect { case one: StatefulExec if holds.contains(one.settings.name) =>
      evictMs(one).map(_ - holds(one.settings.name))
    }
    if (bounds.isEmpty || others.nonEmpty) (exec.evictMs +: bounds).flatten.minOption else bounds.flatten.minOption
  }

  /** The stateful nodes below, down to operators of Spark. */
  private def stateful(plan: SparkPlan): Seq[SparkPlan] = plan match {
    case reused: ReusedExchangeExec => stateful(reused.child)
    case exec: StatefulExec => exec +: stateful(exec.child)
    case other: StateStoreWriter => Seq(other)
    case node => node.children.flatMap(stateful)
  }
}
