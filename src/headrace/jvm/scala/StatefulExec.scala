package org.apache.spark.sql.headrace

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.hadoop.conf.Configuration

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.rules.RuleId
import org.apache.spark.sql.catalyst.trees.TreePatternBits
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.streaming.StateOperatorProgress
import org.apache.spark.sql.types.StructType

/** The operator as one of Spark's stateful operators. State is at the hosts; Spark keeps no store for it. */
case class StatefulExec(
    input: StructType,
    results: Seq[Attribute],
    settings: Settings,
    child: SparkPlan,
    stateInfo: Option[StatefulOperatorStateInfo],
    lateMs: Option[Long],
    evictMs: Option[Long])
    extends HostExec
    with StateStoreWriter
    with FilledExec {
  @volatile @transient private var begun: JsonNode = _
  @transient private var sentSummaries = 0

  // ── Spark's contract of a stateful operator ─────────────────────────────────────────────

  override val stateStoreNames: Seq[String] = Nil // commit validation looks for files of each
  override def shortName: String = Internals.shortName(settings.name)
  override protected def customStatefulOperatorMetrics: Seq[StatefulOperatorCustomMetric] = Metrics.custom
  override def operatorStateMetadata(paths: List[List[String]]): OperatorStateMetadata =
    Internals.metadata(getStateInfo.operatorId, shortName)
  override def stateSchemaList(
      validated: List[StateSchemaValidationResult], old: Option[OperatorStateMetadata]): List[List[String]] = Nil
  override def validateAndMaybeEvolveStateSchema(
      conf: Configuration, batch: Long, version: Int): List[StateSchemaValidationResult] = Nil

  /** Another batch, without input, where a watermark that moved may close windows. */
  override def shouldRunAnotherBatch(newInputWatermark: Long): Boolean =
    settings.windowed && followsSpark && evictMs.exists(newInputWatermark > _)

  /** Operators of Spark above receive rows that are as old as this. */
  override def produceOutputWatermark(inputWatermarkMs: Long): Option[Long] =
    Some(math.max(0, inputWatermarkMs - settings.holdMs))

  override def getProgress(): StateOperatorProgress = {
    if (summaries.value.size > sentSummaries) {
      sentSummaries = summaries.value.size
      sendSummaries(begun)
    }
    Internals.ownMetrics(super.getProgress())
  }

  /**
   * Of several evaluations of a batch all ids name the same state. A sink skips a replayed batch that it has. Its
   * state may be incomplete then, and its ids are unknown: the batch is evaluated once more, without a sink.
   */
  override def getStateStoreCheckpointInfo(): Array[StatefulOpStateStoreCheckpointInfo] = {
    val place = Checkpoints.place(sparkContext, settings.name)
    if (checkpointInfoAccumulator.isZero && Internals.isFirstBatch(session, place.query)) execute().count()
    Internals.newestByPartition(checkpointInfoAccumulator.value.asScala.toSeq, settings)
  }

  // ── what Headrace adds ──────────────────────────────────────────────────────────────────

  private def followsSpark: Boolean = begun != null && begun.get("timing").asText == "spark"

  override protected def watermarkMs(answer: JsonNode): Option[Long] = {
    begun = answer
    if (followsSpark) Upstream.evictMs(this) else None
  }

  override protected def batchRequest(): ObjectNode = {
    val info = getStateInfo
    val place = Checkpoints.place(sparkContext, settings.name)
    val request = Json.empty.put("query", place.query).put("run", info.queryRunId.toString)
    request.put("batch", info.storeVersion).put("node", info.operatorId).put("stateful", true)
    request.put("timing", settings.timing)
    request.set[JsonNode]("plan", Internals.planOf(session, place.query).map(Facts.of).getOrElse(Json.empty))
    if (StatefulOperatorStateInfo.enableStateStoreCheckpointIds(conf)) {
      val ids = request.putArray("ids")
      info.stateStoreCkptIds.foreach(_.foreach(of => ids.add(of.head)))
    }
    request
  }

  override protected def report: TaskReport = {
    val (infos, info) = (checkpointInfoAccumulator, getStateInfo)
    val place = Checkpoints.place(sparkContext, settings.name)
    val (next, base) = (info.storeVersion + 1, Internals.baseIds(session, place.query, info, settings.partitions))
    new TaskReport(metrics, summaries, (partition, id) =>
      infos.add(StatefulOpStateStoreCheckpointInfo(partition, next, Some(Array(id)), base.map(_(partition)))))
  }

  override def withFilled(
      info: Option[StatefulOperatorStateInfo], late: Option[Long], evict: Option[Long]): StatefulExec =
    copy(stateInfo = info, lateMs = late, evictMs = evict)

  override def transformDownWithPruning(cond: TreePatternBits => Boolean, ruleId: RuleId)(
      rule: PartialFunction[SparkPlan, SparkPlan]): SparkPlan =
    Internals.filled(this, rule) match {
      case Some(filled) => filled.mapChildren(_.transformDownWithPruning(cond, ruleId)(rule))
      case None => super.transformDownWithPruning(cond, ruleId)(rule)
    }

  override protected def withNewChildInternal(newChild: SparkPlan): StatefulExec = copy(child = newChild)
}
