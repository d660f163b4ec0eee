package org.apache.spark.sql.headrace

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.channels.SocketChannel

import com.fasterxml.jackson.databind.JsonNode
import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.arrow.vector.ipc.{ArrowStreamReader, ArrowStreamWriter}
import org.apache.arrow.vector.types.pojo.Schema

import org.apache.spark.{SparkException, TaskContext}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, UnsafeProjection}
import org.apache.spark.sql.types.StructType

/**
 * One transaction at one host: header, rows and the word that ends them; then results and the trailer.
 *
 * The host answers when it has all rows, so one thread sends and then reads. Closing the connection before the
 * trailer aborts the transaction. Memory: one batch of rows and one of results.
 */
class HostExchange(
    settings: Settings,
    place: HostPlace,
    header: JsonNode,
    rowSchema: StructType,
    arrowSchema: Schema,
    results: Seq[Attribute],
    context: TaskContext,
    input: Iterator[InternalRow]) {
  private val allocator = Internals.allocator(s"headrace ${settings.name}")
  private var channel: SocketChannel = _
  private var reader: ArrowStreamReader = _
  private var closed = false

  /** The host's results, row by row; `ended` gets the trailer's summary after the last one. */
  def rows(projection: UnsafeProjection, ended: JsonNode => Unit): Iterator[InternalRow] =
    new Iterator[InternalRow] {
      private var current: java.util.Iterator[InternalRow] = _
      private var isOver = false

      override def hasNext: Boolean = {
        if (current == null) current = { start(); java.util.Collections.emptyIterator[InternalRow]() }
        while (!isOver && !current.hasNext) {
          context.killTaskIfInterrupted()
          if (reading(reader.loadNextBatch())) current = Internals.rowsOf(reader.getVectorSchemaRoot)
          else { isOver = true; ended(reading(trailer())); close() }
        }
        !isOver
      }
      override def next(): InternalRow = {
        if (!hasNext) throw new NoSuchElementException
        projection(current.next())
      }
    }

  def close(): Unit = synchronized {
    if (!closed) {
      closed = true
      if (reader != null) reader.close(false)
      if (channel != null) channel.close()
      allocator.close()
    }
  }

  private def start(): Unit = {
    channel = place.connect()
    try { Frames.send(channel, header); send() }
    catch { case lost: IOException => throw refusal(lost) }
    reading(accept())
    reader = new ArrowStreamReader(channel, allocator)
    Internals.compare(settings.name, reading(reader.getVectorSchemaRoot), results)
  }

  private def send(): Unit = {
    val root = VectorSchemaRoot.create(arrowSchema, allocator)
    try {
      val rows = Internals.writer(root)
      val out = new ArrowStreamWriter(root, null, channel)
      out.start()
      var count = 0
      while (input.hasNext) {
        rows.write(input.next())
        count += 1
        if (count == settings.maxRecords || (count % 256 == 0 && rows.sizeInBytes() > settings.maxBytes)) {
          rows.finish(); out.writeBatch(); rows.reset(); count = 0
          context.killTaskIfInterrupted()
        }
      }
      if (count > 0) { rows.finish(); out.writeBatch() }
      out.end()
      Frames.put(channel, ByteBuffer.wrap(HostExchange.AllSent))
    } finally root.close()
  }

  /** The host's first byte: results follow, or an error does. */
  private def accept(): Unit =
    if (Frames.exactly(channel, 1).get() != HostExchange.Results) throw Failure.of(Frames.receive(channel))

  private def trailer(): JsonNode = {
    val said = Frames.receive(channel)
    if (said.has("error")) throw Failure.of(said)
    said.get("summary")
  }

  private def reading[T](read: => T): T = try read catch { case lost: IOException => throw gone(lost) }

  /** Why the host took no more rows: the error that it sent, or that it is gone. */
  private def refusal(lost: IOException): Throwable =
    try { accept(); gone(lost) }
    catch { case error: SparkException => error; case _: IOException => gone(lost) }

  private def gone(lost: IOException): SparkException =
    Failure(
      "HostUnavailable",
      s"the state host of ${place.machine} was lost in mid-batch ${header.get("ticket").get("batch").asLong}: $lost",
      "the batch is not committed; Spark's retry, or a restart of the query, recovers it")
}

object HostExchange {
  val AllSent: Array[Byte] = "DONE".getBytes(java.nio.charset.StandardCharsets.US_ASCII)
  val Results: Byte = 'R'
}
