package org.apache.spark.sql.headrace

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, AttributeMap, Expression, XxHash64}
import org.apache.spark.sql.execution.{FilterExec, InputAdapter, ProjectExec, SparkPlan, WholeStageCodegenExec}
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec

/**
 * An operator right below another one, in whose columns the keys above are: its host can give hints for the
 * operator above. `time` is the column of the event time above, empty if that has none.
 */
case class Link(below: HostExec, keys: Seq[String], time: Option[String]) {
  private val Key = "k[0-9]+"

  /** The lookaheads that the link allows: keys of results may be keys of the rows, too. */
  def names: Seq[String] =
    if (time.isEmpty && keys.forall(name => name.matches(Key) && below.input.fieldNames.contains(name)))
      Seq(Link.Input, Link.Results)
    else Seq(Link.Results)

  /** Makes the operator below give the hints that the batch's ticket chose. */
  def announce(begun: JsonNode, settings: Settings): Unit = {
    val source = begun.get("ticket").path("lookahead").asText
    if (names.contains(source)) {
      val link = Tap.header(begun, settings, time.isDefined).put("source", source).put("time", time.getOrElse(""))
      val array = link.putArray("keys")
      keys.foreach(array.add)
      below.links :+= link
    }
  }
}

object Link {
  val Input = "input"
  val Results = "results"

  /** Why candidates in the host of the operator below are missing. */
  def missing(link: Option[Link]): Map[String, String] = link match {
    case None =>
      val reason = "its keys are not plain columns of a Headrace operator right below"
      Map(Input -> reason, Results -> reason)
    case Some(known) if !known.names.contains(Input) =>
      Map(Input -> "the rows below lack its keys or its event time")
    case _ => Map.empty
  }

  /** The link of an operator whose input this is; none if its keys are not plain columns of another operator. */
  def of(child: SparkPlan): Option[Link] = child match {
    case exchange: ShuffleExchangeExec =>
      val rows = exchange.child match {
        case packets: PacketExec => packets.child
        case other => other
      }
      rows.output.find(_.name == "__hash").flatMap(traced(rows, _, rows.output.find(_.name == "__time")))
    case _ => None
  }

  private def traced(plan: SparkPlan, hash: Expression, time: Option[Expression]): Option[Link] = plan match {
    case below: HostExec => linked(below, hash, time)
    case ProjectExec(list, child) =>
      val defined = AttributeMap(list.collect { case alias: Alias => alias.toAttribute -> alias.child })
      def inlined(expression: Expression): Expression =
        expression.transform { case column: Attribute => defined.getOrElse(column, column) }
      traced(child, inlined(hash), time.map(inlined))
    case _: FilterExec | _: WholeStageCodegenExec | _: InputAdapter => traced(plan.children.head, hash, time)
    case _ => None
  }

  private def linked(below: HostExec, hash: Expression, time: Option[Expression]): Option[Link] = {
    def column(expression: Expression): Option[String] = expression match {
      case at: Attribute => below.results.find(_.exprId == at.exprId).map(_.name)
      case _ => None
    }
    val keys = hash match {
      case XxHash64(children, 42L) => children.map(column)
      case _ => Nil
    }
    val timed = time.map(column)
    if (keys.isEmpty || keys.exists(_.isEmpty) || timed.exists(_.isEmpty)) None
    else Some(Link(below, keys.flatten, timed.flatten))
  }
}
