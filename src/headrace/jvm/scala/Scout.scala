package org.apache.spark.sql.headrace

import com.fasterxml.jackson.databind.JsonNode

import java.util.concurrent.ConcurrentHashMap

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.{SparkListener, SparkListenerJobStart}
import org.apache.spark.sql.catalyst.expressions.{PythonUDF, ScalaUDF, SubqueryExpression}
import org.apache.spark.sql.catalyst.plans.logical.{EventTimeWatermark, Filter, LogicalPlan, Project, SubqueryAlias}
import org.apache.spark.sql.catalyst.plans.logical.RepartitionByExpression
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.SparkPlan

/**
 * The lookahead of the next batch: a small job over the files that it will read, with the expressions of the query up
 * to the hash. It begins after the first job of the running batch, so that Spark's scheduler prefers the batch's
 * tasks; it has one task at a time, and ends when the next batch is planned.
 */
class Scout(rows: LogicalPlan, session: SparkSession, settings: Settings, begun: JsonNode) extends Logging {
  private val context = session.sparkContext
  private val group = s"headrace-scout-${settings.uid}"
  @volatile private var running, over = false

  /** Begins with the batch's first job: jobs of a larger number come after it in Spark's queue. */
  def begin(batch: String, query: String): Unit = {
    Scout.current.put(settings.uid, this)
    context.addSparkListener(new SparkListener {
      override def onJobStart(job: SparkListenerJobStart): Unit = {
        val properties = Option(job.properties)
        def is(name: String, value: String): Boolean = properties.exists(_.getProperty(name) == value)
        val isFirst = is(Checkpoints.BatchId, batch) && is(Checkpoints.QueryId, query)
        if (isFirst || over) context.removeSparkListener(this)
        if (isFirst && !over) start()
      }
    })
  }

  /** Its hints come too late from now on. Spark warns of a group without a job, so only a running one is cancelled. */
  private def end(): Unit = {
    over = true
    if (running) context.cancelJobGroup(group)
  }

  private def start(): Unit = {
    val thread = new Thread(() => run(), s"headrace scout ${settings.name}")
    thread.setDaemon(true)
    thread.start()
  }

  private def run(): Unit =
    try session.withActive {
      context.setJobGroup(group, s"headrace: hints for the next batch of ${settings.name}", interruptOnCancel = false)
      val rows = Tap.of(planned, settings, begun).execute().coalesce(1)
      running = true
      if (!over) rows.foreachPartition(Scout.drain)
    } catch {
      case NonFatal(error) => logDebug(s"no hints for the next batch of ${settings.name}: $error")
    } finally {
      running = false
      Scout.current.remove(settings.uid, this)
    }

  private lazy val planned: SparkPlan = {
    val columns = rows.output.filter(column => column.name == "__hash" || column.name == "__time")
    Internals.ofRows(session, Project(columns, rows)).queryExecution.executedPlan
  }
}

object Scout {
  val name = "scout"

  private val drain: Iterator[_] => Unit = rows => rows.foreach(_ => ())

  /** The newest scout of each operator, by the operator's id. */
  private val current = new ConcurrentHashMap[String, Scout]()

  /** Ends the job for the batch that begins now. */
  def end(settings: Settings): Unit = Option(current.remove(settings.uid)).foreach(_.end())

  /** Why the input of the next batch cannot be read ahead; None: it is files, below plain expressions only. */
  def missing(plan: LogicalPlan, operator: String): Option[String] = input(plan, operator) match {
    case None => Some("its rows have no hash before the shuffle")
    case Some(rows) =>
      rows.collectLeaves() match {
        case Seq(leaf) if NextFiles.isSource(leaf) =>
          rows.collectFirst { case node if !isPlain(node) => s"${node.nodeName} is between the files and the operator" }
        case Seq(_) => Some("its source is not files")
        case leaves => Some(s"its rows come from ${leaves.size} sources")
      }
  }

  /** The rows of the next batch, up to their hashes; none where its files are not known yet. */
  def over(plan: LogicalPlan, session: SparkSession, settings: Settings, begun: JsonNode): Option[Scout] =
    for {
      rows <- input(plan, settings.name)
      next <- NextFiles.of(rows.collectLeaves().head, session)
    } yield new Scout(rows.transformUp { case leaf if leaf.children.isEmpty => next }, session, settings, begun)

  private def input(plan: LogicalPlan, operator: String): Option[LogicalPlan] =
    plan.collectFirst { case StateNode(child, _, _, settings) if settings.name == operator => child }.map {
      case RepartitionByExpression(_, packets: PacketNode, _, _) => packets.child
      case other => other
    }.filter(_.output.exists(_.name == "__hash"))

  /** User code would run twice, and an expression that is not deterministic gives other keys. */
  private def isPlain(node: LogicalPlan): Boolean = {
    val known = node match {
      case _: Project | _: Filter | _: EventTimeWatermark | _: SubqueryAlias => true
      case other => other.children.isEmpty
    }
    known && node.expressions.forall(expression => expression.deterministic && !expression.exists {
      case _: PythonUDF | _: ScalaUDF | _: SubqueryExpression => true
      case _ => false
    })
  }
}
