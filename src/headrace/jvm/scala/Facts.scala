package org.apache.spark.sql.headrace

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec
import org.apache.spark.sql.execution.streaming.operators.stateful.{EventTimeWatermarkExec, StateStoreWriter}

/** What the choice of timing goes by: the watermarks of a batch's plan, and whose its stateful operators are. */
object Facts {
  def of(plan: SparkPlan): ObjectNode = {
    val facts = Json.empty
    val watermarks = facts.putArray("watermarks")
    every(plan).collect { case node: EventTimeWatermarkExec => node.nodeId.toString }.distinct.foreach(watermarks.add)
    val others = facts.putArray("others")
    every(plan).collect { case other: StateStoreWriter if !other.isInstanceOf[StatefulExec] => other.shortName }
      .distinct.foreach(others.add)
    facts
  }

  /** All nodes, those of a reused exchange too. */
  def every(plan: SparkPlan): Seq[SparkPlan] = plan match {
    case reused: ReusedExchangeExec => every(reused.child)
    case node => node +: node.children.flatMap(every)
  }
}
