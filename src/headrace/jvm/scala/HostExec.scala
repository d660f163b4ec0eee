package org.apache.spark.sql.headrace

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSet}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.plans.physical.{Partitioning, UnknownPartitioning}
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.CollectionAccumulator

/** What both execs share: a batch begins at the coordinator once, when Spark plans it; tasks get the answer. */
trait HostExec extends UnaryExecNode {
  /** The rows inside of the packets. */
  def input: StructType
  def results: Seq[Attribute]
  def settings: Settings

  override def output: Seq[Attribute] = results
  override def producedAttributes: AttributeSet = AttributeSet(results)
  override def outputPartitioning: Partitioning = UnknownPartitioning(settings.partitions)
  override protected def stringArgs: Iterator[Any] = Iterator(settings.name, results)

  @transient lazy val summaries: CollectionAccumulator[String] =
    sparkContext.collectionAccumulator[String](s"headrace ${settings.name}")

  def operatorName: String = settings.name

  /** The watermark after the operator's tasks have ended, for the driver's Python; empty without one. */
  def watermarkText: String = Upstream.watermarkMs(this).fold("")(_.toString)

  /** The batch: its number, the query's run, what Spark's commit log has of the batch before. */
  protected def batchRequest(): ObjectNode

  /** What becomes of a task's summary. */
  protected def report: TaskReport

  /** Spark's watermark, where windows close by it. */
  protected def watermarkMs(begun: JsonNode): Option[Long]

  /** The operators above that get hints from this one; set before its tasks are made. */
  @transient @volatile var links: Seq[ObjectNode] = Nil

  @transient private lazy val link: Option[Link] = Link.of(child)

  protected def begin(): JsonNode = {
    val request = batchRequest()
    request.set[JsonNode]("operator", settings.operator)
    request.put("uid", settings.uid).put("partitions", settings.partitions)
    Option(conf.getConfString("spark.headrace.commit", null)).foreach(request.put("commit", _))
    val early = request.putArray("early")
    val missing = request.putObject("missing")
    batchPlan.fold(Option("the plan of the batch is not known"))(Scout.missing(_, settings.name)) match {
      case None => early.add(Scout.name)
      case Some(reason) => missing.put(Scout.name, reason)
    }
    link.foreach(_.names.foreach(early.add))
    Link.missing(link).foreach { case (name, reason) => missing.put(name, reason) }
    Coordinator.ask(settings, "plan", request)
  }

  override protected def doExecute(): RDD[InternalRow] = {
    val begun = begin()
    link.foreach(_.announce(begun, settings))
    scout(begun)
    val rows = Internals.spread(Tap.over(child, settings, begun).execute(), settings)
    val task = new HostTask(
      settings, Json.text(begun), watermarkMs(begun), new EventTimes(child, settings, begun.get("ticket")), input,
      results, conf.sessionLocalTimeZone, report, links.map(Json.text))
    new PlacedRdd(rows, task, placesOf(begun))
  }

  @transient private lazy val batchPlan: Option[LogicalPlan] =
    Option(sparkContext.getLocalProperty(Checkpoints.QueryId)).flatMap(Internals.batchPlanOf(session, _))

  /** Hints for the next batch, where the batch's ticket chose that. */
  private def scout(begun: JsonNode): Unit = {
    Scout.end(settings)
    if (begun.get("ticket").path("lookahead").asText == Scout.name) {
      val place = Checkpoints.place(sparkContext, settings.name)
      try batchPlan.flatMap(Scout.over(_, session, settings, begun)).foreach(_.begin(place.batch.toString, place.query))
      catch { case NonFatal(error) => logInfo(s"no hints for the next batch of ${settings.name}: $error") }
    }
  }

  private def placesOf(begun: JsonNode): Map[Int, Seq[String]] =
    begun.get("partitions").elements.asScala.zipWithIndex.map { case (owner, number) =>
      number -> owner.get("executors").elements.asScala.map(_.asText).toSeq
    }.toMap

  /** Sends the summaries of the tasks to the coordinator. */
  protected def sendSummaries(begun: JsonNode): Unit = {
    val lines = summaries.value.asScala.toSeq
    if (begun != null && lines.nonEmpty) {
      val ticket = begun.get("ticket")
      val request = Json.empty
        .put("query", ticket.get("query").asText)
        .put("run", ticket.get("start").asText)
        .put("batch", ticket.get("batch").asLong)
        .put("operator", settings.name)
      val array = request.putArray("tasks")
      lines.foreach(line => array.add(Json.read(line)))
      Coordinator.ask(settings, "ended", request)
    }
  }
}
