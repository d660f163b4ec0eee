package org.apache.spark.sql.headrace

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.channels.SocketChannel

import com.fasterxml.jackson.databind.JsonNode
import org.apache.arrow.vector.ipc.{ArrowStreamReader, WriteChannel}
import org.apache.arrow.vector.ipc.message.MessageSerializer
import org.apache.arrow.vector.types.pojo.Schema

import org.apache.spark.{SparkException, TaskContext}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, UnsafeRow}

/**
 * One transaction at one host: header, packets of rows and the word that ends them; then results and the trailer.
 *
 * The host answers when it has all rows, so one thread sends and then reads. Closing the connection before the
 * trailer aborts the transaction. Memory: one packet and one batch of results.
 */
class HostExchange(
    settings: Settings,
    place: HostPlace,
    header: JsonNode,
    arrowSchema: Schema,
    results: Seq[Attribute],
    context: TaskContext,
    packets: Iterator[InternalRow]) {
  private val allocator = Internals.allocator(s"headrace ${settings.name}")
  private var channel: SocketChannel = _
  private var reader: ArrowStreamReader = _
  private var closed = false

  /** The host's results, row by row; `ended` gets the trailer's summary after the last one. */
  def rows(ended: JsonNode => Unit): Iterator[InternalRow] =
    new Iterator[InternalRow] {
      private val converted = new ResultRows(results)
      private var current: Iterator[InternalRow] = _
      private var isOver = false

      override def hasNext: Boolean = {
        if (current == null) current = { start(); Iterator.empty }
        while (!isOver && !current.hasNext) {
          context.killTaskIfInterrupted()
          if (reading(reader.loadNextBatch())) current = converted.of(reader.getVectorSchemaRoot)
          else { isOver = true; ended(reading(trailer())); close() }
        }
        !isOver
      }
      override def next(): InternalRow = {
        if (!hasNext) throw new NoSuchElementException
        current.next()
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

  /** An Arrow stream: the schema, the packets as they are, the end of the stream, the word. */
  private def send(): Unit = {
    MessageSerializer.serialize(new WriteChannel(channel), arrowSchema)
    packets.foreach { packet =>
      Frames.put(channel, PacketBuffer.messageOf(packet.asInstanceOf[UnsafeRow]))
      context.killTaskIfInterrupted()
    }
    Frames.put(channel, ByteBuffer.wrap(HostExchange.StreamEnd ++ HostExchange.AllSent))
  }

  /** The host's first byte: results follow, or an error does. */
  private def accept(): Unit =
    if (Frames.exactly(channel, 1).get() != HostExchange.Results) throw Failure.of(Frames.receive(channel))

  private def trailer(): JsonNode = {
    val frame = Frames.receive(channel)
    if (frame.has("error")) throw Failure.of(frame)
    frame.get("summary")
  }

  private def reading[T](read: => T): T = try read catch { case lost: IOException => throw gone(lost) }

  /** Why the host took no more rows: the error that it sent, or that it is gone. */
  private def refusal(lost: IOException): Throwable =
    try { accept(); gone(lost) }
    catch { case error: SparkException => error; case _: IOException => gone(lost) }

  private def gone(lost: IOException): SparkException =
    Failure(
      "HostUnavailable",
      s"${place.name} was lost in mid-batch ${header.get("ticket").get("batch").asLong}: $lost",
      "the batch is not committed; Spark's retry, or a restart of the query, recovers it")
}

object HostExchange {
  val StreamEnd: Array[Byte] = Array[Byte](-1, -1, -1, -1, 0, 0, 0, 0)
  val AllSent: Array[Byte] = "DONE".getBytes(java.nio.charset.StandardCharsets.US_ASCII)
  val Results: Byte = 'R'
}
