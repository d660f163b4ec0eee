package org.apache.spark.sql.headrace

import org.apache.hadoop.conf.Configuration

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.physical.{Partitioning, UnknownPartitioning}
import org.apache.spark.sql.catalyst.rules.RuleId
import org.apache.spark.sql.catalyst.trees.TreePatternBits
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.streaming.StateOperatorProgress

/** Passes rows on to user code in a Python worker, and requests from Spark the batches that its timers need. */
case class PacedExec(
    settings: Settings,
    child: SparkPlan,
    stateInfo: Option[StatefulOperatorStateInfo],
    lateMs: Option[Long],
    evictMs: Option[Long])
    extends UnaryExecNode
    with StateStoreWriter
    with FilledExec {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = UnknownPartitioning(settings.partitions)
  override protected def stringArgs: Iterator[Any] = Iterator(settings.name)

  override val stateStoreNames: Seq[String] = Nil
  override def shortName: String = Internals.shortName(settings.name)
  override def operatorStateMetadata(paths: List[List[String]]): OperatorStateMetadata =
    Internals.metadata(getStateInfo.operatorId, shortName)
  override def stateSchemaList(
      validated: List[StateSchemaValidationResult], old: Option[OperatorStateMetadata]): List[List[String]] = Nil
  override def validateAndMaybeEvolveStateSchema(
      conf: Configuration, batch: Long, version: Int): List[StateSchemaValidationResult] = Nil
  override def getProgress(): StateOperatorProgress = Internals.ownMetrics(super.getProgress())

  /**
   * Timers of processing time may be due at any batch; those of event time when the watermark has moved.
   * A query that ends with its input waits for no timer of processing time: it would never end.
   */
  override def shouldRunAnotherBatch(newInputWatermark: Long): Boolean = settings.clock match {
    case "processingtime" => !Internals.endsWithItsInput(session)
    case "eventtime" => evictMs.exists(newInputWatermark > _)
    case _ => false
  }

  /** Rows of processing time have no event time, as in Spark's own processors. */
  override def produceOutputWatermark(inputWatermarkMs: Long): Option[Long] =
    if (settings.clock == "processingtime") None else Some(inputWatermarkMs)

  /** State is versioned by the worker's own commits; Spark's log gets one name for all versions. */
  override def getStateStoreCheckpointInfo(): Array[StatefulOpStateStoreCheckpointInfo] = {
    val info = getStateInfo
    Array.tabulate(settings.partitions) { partition =>
      StatefulOpStateStoreCheckpointInfo(
        partition, info.storeVersion + 1, Some(Array("paced")), info.stateStoreCkptIds.map(_(partition)))
    }
  }

  /** The worker reads the batch's watermark from a local property: Spark copies those into its tasks. */
  override protected def doExecute(): RDD[InternalRow] = {
    val watermark = s"${getStateInfo.storeVersion}:${evictMs.getOrElse(0L)}"
    sparkContext.setLocalProperty(s"headrace.watermark.${settings.name}", watermark)
    Internals.spread(child.execute(), settings)
  }

  override def withFilled(
      info: Option[StatefulOperatorStateInfo], late: Option[Long], evict: Option[Long]): PacedExec =
    copy(stateInfo = info, lateMs = late, evictMs = evict)

  override def transformDownWithPruning(cond: TreePatternBits => Boolean, ruleId: RuleId)(
      rule: PartialFunction[SparkPlan, SparkPlan]): SparkPlan =
    Internals.filled(this, rule) match {
      case Some(filled) => filled.mapChildren(_.transformDownWithPruning(cond, ruleId)(rule))
      case None => super.transformDownWithPruning(cond, ruleId)(rule)
    }

  override protected def withNewChildInternal(newChild: SparkPlan): PacedExec = copy(child = newChild)
}
