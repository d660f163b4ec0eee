package org.apache.spark.sql.headrace

import org.apache.arrow.vector.VectorSchemaRoot

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, UnsafeProjection}
import org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter

/**
 * The host's results as rows of Spark: one reused unsafe row, filled from memory addresses.
 * Threads: the task's own. A batch is read before the next one is loaded.
 */
class ResultRows(results: Seq[Attribute]) {
  private lazy val projection = UnsafeProjection.create(results, results)
  private val writer = new UnsafeRowWriter(results.length)

  def of(batch: VectorSchemaRoot): Iterator[InternalRow] = {
    val columns = batch.getFieldVectors.asScala.toArray.zip(results).zipWithIndex.map {
      case ((vector, attribute), ordinal) => ResultColumn.of(vector, attribute.dataType, ordinal)
    }
    if (columns.forall(_.nonEmpty)) copied(columns.map(_.get), batch.getRowCount)
    else Internals.rowsOf(batch).asScala.map(projection)
  }

  private def copied(columns: Array[ResultColumn], total: Int): Iterator[InternalRow] =
    new Iterator[InternalRow] {
      private var at = 0
      override def hasNext: Boolean = at < total
      override def next(): InternalRow = {
        if (at >= total) throw new NoSuchElementException
        writer.reset()
        writer.zeroOutNullBytes()
        var ordinal = 0
        while (ordinal < columns.length) {
          columns(ordinal).copy(at, writer)
          ordinal += 1
        }
        at += 1
        writer.getRow
      }
    }
}
