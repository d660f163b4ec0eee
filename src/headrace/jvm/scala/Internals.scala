package org.apache.spark.sql.headrace

import java.util.UUID

import org.apache.arrow.memory.BufferAllocator
import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.arrow.vector.types.pojo.Schema
import org.apache.hadoop.fs.Path

import scala.jdk.CollectionConverters._

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.Column
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, PythonUDF}
import org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.{Dataset, ExpressionUtils, SparkSession}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.MapInArrowExec
import org.apache.spark.sql.execution.streaming.AvailableNowTrigger
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.streaming.StateOperatorProgress
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.ArrowUtils
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnarBatch, ColumnVector}

/**
 * Every use of what Spark does not publish, beside the traits that an exec extends (`SparkPlan`,
 * `StateStoreWriter`). Checked with Spark 4.3.0; `tests/spark/test_bridge_internals.py` notices a change.
 */
object Internals {

  // ── `IncrementalExecution` fills state info and watermarks into a closed list of classes. Each of its rules
  //    is shown `StreamingDeduplicateExec`, which is in the list, and what it fills in is taken over.

  def filled(exec: FilledExec, rule: PartialFunction[SparkPlan, SparkPlan]): Option[SparkPlan] =
    if (rule.isDefinedAt(exec)) None
    else {
      val standIn = StreamingDeduplicateExec(Nil, exec.child, exec.stateInfo, exec.lateMs, exec.evictMs)
      rule.applyOrElse(standIn, identity[SparkPlan]) match {
        case StreamingDeduplicateExec(_, _, info, late, evict)
            if (info, late, evict) != ((exec.stateInfo, exec.lateMs, exec.evictMs)) =>
          val copy = exec.withFilled(info, late, evict)
          copy.copyTagsFrom(exec)
          Some(copy)
        case _ => None
      }
    }

  def shortName(operator: String): String = s"headrace:$operator"

  def metadata(operator: Long, name: String): OperatorStateMetadata =
    OperatorStateMetadataV1(OperatorInfoV1(operator, name), Array.empty[StateStoreMetadataV1])

  /** The progress without the metrics of the state store that Spark would have used. */
  def ownMetrics(progress: StateOperatorProgress): StateOperatorProgress = {
    progress.customMetrics.keySet.removeIf(name => !name.startsWith("headrace"))
    progress
  }

  def newestByPartition(
      infos: Seq[StatefulOpStateStoreCheckpointInfo],
      settings: Settings): Array[StatefulOpStateStoreCheckpointInfo] = {
    val newest = infos.groupBy(_.partitionId).view.mapValues(_.last).toMap
    if (newest.size != settings.partitions) {
      throw Failure(
        "QueryError",
        s"the batch evaluated ${newest.size} of ${settings.partitions} partitions of ${settings.name}",
        "a foreachBatch function must use the whole batch (write it, count it), not only show or limit it; " +
          "correct it and start from a new checkpoint")
    }
    newest.toSeq.sortBy(_._1).map(_._2).toArray
  }

  // ── `EventTimeWatermarkExec`: the event times that its accumulator has by now.

  def eventTimes(nodes: Seq[SparkPlan]): Seq[(String, Long)] = nodes.collect {
    case node: EventTimeWatermarkExec if node.eventTimeStats.value.count > 0 =>
      node.nodeId.toString -> node.eventTimeStats.value.max
  }

  // ── `StreamExecution`, by the session's table of running queries.

  private def running(session: SparkSession, query: UUID): Option[StreamExecution] =
    Option(session.sharedState.activeStreamingQueries.get(query))

  def checkpointOf(session: SparkSession, query: UUID): Option[Path] =
    running(session, query).map(execution => new Path(execution.resolvedCheckpointRoot))

  def planOf(session: SparkSession, query: String): Option[SparkPlan] =
    running(session, UUID.fromString(query)).flatMap(execution => Option(execution.lastExecution)).map(_.executedPlan)

  /** Whether no batch of this run has ended yet: only the first one may be a replay. */
  def isFirstBatch(session: SparkSession, query: String): Boolean =
    running(session, UUID.fromString(query)).exists(_.recentProgress.isEmpty)

  /** The analysed plan of the query's running batch, with its relations in place of the sources. */
  def batchPlanOf(session: SparkSession, query: String): Option[LogicalPlan] =
    running(session, UUID.fromString(query)).flatMap(execution => Option(execution.lastExecution)).map(_.analyzed)

  /** Whether the query of this thread runs with `Trigger.AvailableNow`. */
  def endsWithItsInput(session: SparkSession): Boolean =
    Option(session.sparkContext.getLocalProperty(StreamExecution.QUERY_ID_KEY))
      .flatMap(query => running(session, UUID.fromString(query)))
      .exists(_.trigger == AvailableNowTrigger)

  /**
   * The ids of the base, one per partition. After a change of the number of partitions all old ones name one
   * version, and Spark's own table, with which it compares what tasks report, gets the new number.
   */
  def baseIds(
      session: SparkSession, query: String, info: StatefulOperatorStateInfo, partitions: Int): Option[Array[Array[String]]] =
    info.stateStoreCkptIds.map { ids =>
      if (ids.length == partitions) ids
      else {
        val resized = Array.fill(partitions)(ids.head)
        running(session, UUID.fromString(query)).flatMap(execution => Option(execution.lastExecution))
          .foreach(_.currentStateStoreCkptId.put(info.operatorId, resized))
        resized
      }
    }

  // ── Arrow as Spark writes and reads it.

  def allocator(name: String): BufferAllocator = ArrowUtils.rootAllocator.newChildAllocator(name, 0, Long.MaxValue)

  def arrowSchema(schema: StructType, zone: String): Schema = ArrowUtils.toArrowSchema(schema, zone, true, false)

  def rowsOf(root: VectorSchemaRoot): java.util.Iterator[InternalRow] = {
    val columns = root.getFieldVectors.asScala.map(vector => new ArrowColumnVector(vector): ColumnVector).toArray
    new ColumnarBatch(columns, root.getRowCount).rowIterator()
  }

  /** Refuse results of other types than planned, before a row is read with the wrong one. */
  def compare(operator: String, root: VectorSchemaRoot, results: Seq[Attribute]): Unit = {
    val got = ArrowUtils.fromArrowSchema(root.getSchema)
    val same = got.length == results.length && got.fields.zip(results).forall { case (field, planned) =>
      field.name == planned.name &&
        org.apache.spark.sql.types.DataType.equalsIgnoreNullability(field.dataType, planned.dataType)
    }
    if (!same) {
      throw Failure(
        "HeadraceError",
        s"operator $operator: the host returns ${got.simpleString}, the plan has " +
          results.map(at => s"${at.name}:${at.dataType.simpleString}").mkString("struct<", ",", ">"),
        "driver and state host run different releases of headrace: install one everywhere")
    }
  }

  // ── expressions: keys as Spark's own aggregates normalise them.

  /** One NaN, no -0.0. */
  def normalised(key: Expression): Expression =
    if (NormalizeFloatingNumbers.needNormalize(key.dataType)) NormalizeFloatingNumbers.normalize(key) else key

  def changed(column: Column, change: Expression => Expression): Column =
    ExpressionUtils.column(change(ExpressionUtils.expression(column)))

  // ── plans

  /** Whether a node is a Headrace operator in Python workers, which is called `headrace_<name>`. */
  def isPythonTask(node: SparkPlan): Boolean = node match {
    case MapInArrowExec(task: PythonUDF, _, _, _, _) => task.name.startsWith("headrace_")
    case _ => false
  }

  def ofRows(session: SparkSession, plan: LogicalPlan): Dataset[_] = Dataset.ofRows(session, plan)

  /** The rows in as many partitions as the operator has. Spark prunes the shuffle of a batch without rows. */
  def spread(rows: RDD[InternalRow], settings: Settings): RDD[InternalRow] =
    if (rows.getNumPartitions == settings.partitions) rows
    else if (rows.getNumPartitions == 0) new SpreadRdd(rows, settings.partitions)
    else {
      throw new IllegalStateException(
        s"operator ${settings.name}: ${rows.getNumPartitions} partitions of rows instead of ${settings.partitions}")
    }
}
