package org.apache.spark.sql.headrace

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import org.apache.hadoop.fs.Path

import org.apache.spark.SparkContext
import org.apache.spark.sql.classic.SparkSession

/** Where in a streaming query the driver's thread is. */
case class Place(query: String, run: String, batch: Long)

/** What a checkpoint records about an operator before its batch is planned. */
object Checkpoints {
  val QueryId = "sql.streaming.queryId"
  val BatchId = "streaming.sql.batchId"
  private val RunId = "spark.jobGroup.id"

  def batchOf(context: SparkContext): Option[Long] = Option(context.getLocalProperty(BatchId)).map(_.toLong)

  def place(context: SparkContext, operator: String): Place = {
    val query = context.getLocalProperty(QueryId)
    val batch = context.getLocalProperty(BatchId)
    if (query == null || batch == null) {
      throw Failure(
        "QueryError",
        s"operator $operator runs only in a streaming query",
        "start it with writeStream; a batch DataFrame has no state")
    }
    Place(query, context.getLocalProperty(RunId), batch.toLong)
  }

  /** The query and the run of this thread, if it is that of a streaming query. */
  def running: Option[(String, String)] = {
    val context = SparkSession.active.sparkContext
    Option(context.getLocalProperty(QueryId)).flatMap(query => Option(context.getLocalProperty(RunId)).map((query, _)))
  }

  private val plain = new ConcurrentHashMap[(String, String), java.lang.Boolean]()
  private val RunsKept = 1000

  /** Whether the checkpoint began as a stateless plan; a run of a query looks once. */
  def isPlain(operator: String): Boolean = {
    val session = SparkSession.active
    val query = session.sparkContext.getLocalProperty(QueryId)
    val run = session.sparkContext.getLocalProperty(RunId)
    if (query == null || run == null) return false
    if (plain.size > RunsKept) plain.clear()
    plain.computeIfAbsent((run, operator), _ =>
      Internals.checkpointOf(session, UUID.fromString(query)).exists(beganStateless(session, _, operator)))
  }

  /** Whether there are committed batches, and the metadata of Spark's state does not name the operator. */
  private def beganStateless(session: SparkSession, root: Path, operator: String): Boolean = {
    val fs = root.getFileSystem(session.sessionState.newHadoopConf())
    val commits = new Path(root, "commits")
    fs.exists(commits) && fs.listStatus(commits).exists(_.getPath.getName.forall(_.isDigit)) &&
      !names(fs, new Path(root, "state"), operator)
  }

  private def names(fs: org.apache.hadoop.fs.FileSystem, state: Path, operator: String): Boolean =
    fs.exists(state) && fs.listStatus(state).exists { folder =>
      val metadata = new Path(folder.getPath, "_metadata/metadata")
      fs.exists(metadata) && {
        val stream = fs.open(metadata)
        val text = try new String(stream.readAllBytes(), "UTF-8") finally stream.close()
        text.contains("\"" + Internals.shortName(operator) + "\"")
      }
    }
}
