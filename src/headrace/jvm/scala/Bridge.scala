package org.apache.spark.sql.headrace

import org.apache.spark.sql.Column
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.types.{DataType, StructType}

/** What the driver's Python calls. */
object Bridge {
  /** Make a session plan nodes of this jar. Streaming queries inherit it; sessions made by `newSession` do not. */
  def install(session: SparkSession): Unit = {
    val methods = session.experimental
    if (!methods.extraStrategies.exists(_.getClass.getName == classOf[StateStrategy].getName))
      methods.extraStrategies = methods.extraStrategies :+ new StateStrategy
  }

  /** A tiny query through a node of this jar, in a task of its own. A thread may have no active session. */
  def probe(session: SparkSession): Long = session.withActive {
    val execution = session.range(1).queryExecution
    val settings = new Settings("""{"name":"probe","uid":"probe"}""")
    StatefulExec(new StructType, Nil, settings, execution.sparkPlan, None, None, None)
    Internals.ofRows(session, ProbeNode(execution.analyzed)).collect().length.toLong
  }

  /** The rows of `df` through an operator whose results have the schema given as JSON. */
  def place(df: Dataset[_], schema: String, settings: String): Dataset[_] = {
    val (plan, described) = (df.queryExecution.analyzed, new Settings(settings))
    val results = DataTypeUtils.toAttributes(DataType.fromJson(schema).asInstanceOf[StructType])
    val packets = PacketNode.over(plan, described.packetLimits)
    Internals.ofRows(df.sparkSession, StateNode(packets, plan.schema, results, described))
  }

  /** Values of any type as bytes; with `isKey`, equal values have equal bytes. */
  def pack(values: Column, isKey: Boolean): Column = Internals.changed(values, Packed(_, isKey))

  /** The values, of the type given as JSON, that `pack` made bytes of. */
  def unpack(bytes: Column, kind: String): Column =
    Internals.changed(bytes, Unpacked(_, DataType.fromJson(kind)))

  /** The rows of a batch DataFrame as a stream that has them in its first batch only. */
  def firstBatch(df: Dataset[_]): Dataset[_] =
    Internals.ofRows(df.sparkSession, FirstBatchNode(df.queryExecution.analyzed))

  /** The rows of `df`, with the batches that timers of user code above need. */
  def pace(df: Dataset[_], settings: String): Dataset[_] =
    Internals.ofRows(df.sparkSession, PacedNode(df.queryExecution.analyzed, new Settings(settings)))
}
