package org.apache.spark.sql.headrace

import java.nio.ByteBuffer

import com.google.flatbuffers.FlatBufferBuilder
import org.apache.arrow.flatbuf.{Buffer, FieldNode, MessageHeader, RecordBatch}
import org.apache.arrow.vector.ipc.message.MessageSerializer

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.types.StructType
import org.apache.spark.unsafe.Platform

/**
 * The rows of one partition that wait for their packet. A packet is an encapsulated Arrow message, a record batch,
 * inside of an unsafe row: the partition's number and the message as a binary value.
 *
 * Columns are arrays on the heap, so that no buffer has to be released. Threads: the task's own.
 */
class PacketBuffer(partition: Int, schema: StructType) {
  private val columns: Array[PacketColumn] =
    schema.fields.zipWithIndex.map { case (field, ordinal) => PacketColumn.of(field.dataType, ordinal) }
  private var count = 0
  private var variableBytes = 0L
  private val fixedBytes = columns.foldLeft(0)((bytes, column) => bytes + column.width)

  def rows: Int = count
  def bytes: Long = fixedBytes.toLong * count + variableBytes

  def add(row: UnsafeRow): Unit = {
    var at = 0
    while (at < columns.length) {
      variableBytes += columns(at).add(row, count)
      at += 1
    }
    count += 1
  }

  /** The packet as a row; the buffer is empty after it. */
  def take(): UnsafeRow = {
    val buffers = columns.flatMap(_.buffers(count))
    val metadata = metadataOf(buffers)
    val body = buffers.map(buffer => PacketBuffer.padded(buffer.length)).sum
    val message = PacketBuffer.PrefixBytes + metadata.remaining + body
    val bytes = new Array[Byte](PacketBuffer.RowBytes + PacketBuffer.padded(message))
    val out = ByteBuffer.wrap(bytes).order(java.nio.ByteOrder.LITTLE_ENDIAN)
    out.position(PacketBuffer.RowBytes)
    out.putInt(PacketBuffer.Continuation).putInt(metadata.remaining).put(metadata)
    buffers.foreach { buffer =>
      out.put(buffer.data, 0, buffer.length)
      out.position(out.position + PacketBuffer.padded(buffer.length) - buffer.length)
    }
    columns.foreach(_.clear())
    count = 0
    variableBytes = 0L
    PacketBuffer.rowOf(partition, bytes, message)
  }

  /** The message's header: how many values and nulls a column has, and where its buffers are. */
  private def metadataOf(buffers: Array[FilledBuffer]): ByteBuffer = {
    val builder = new FlatBufferBuilder()
    RecordBatch.startNodesVector(builder, columns.length)
    columns.reverseIterator.foreach(column => FieldNode.createFieldNode(builder, count, column.nulls))
    val nodes = builder.endVector()
    val ends = buffers.scanLeft(0L)((at, buffer) => at + PacketBuffer.padded(buffer.length))
    RecordBatch.startBuffersVector(builder, buffers.length)
    buffers.indices.reverse.foreach(at => Buffer.createBuffer(builder, ends(at), buffers(at).length))
    val places = builder.endVector()
    RecordBatch.startRecordBatch(builder)
    RecordBatch.addLength(builder, count)
    RecordBatch.addNodes(builder, nodes)
    RecordBatch.addBuffers(builder, places)
    val batch = RecordBatch.endRecordBatch(builder)
    PacketBuffer.aligned(MessageSerializer.serializeMessage(builder, MessageHeader.RecordBatch, batch, ends.last))
  }
}

/** The first `length` bytes of an array. */
class FilledBuffer(val data: Array[Byte], val length: Int)

object PacketBuffer {
  private val Continuation = 0xFFFFFFFF // Arrow's mark of an encapsulated message
  private val PrefixBytes = 8 // the mark and the header's length
  private val RowBytes = 24 // null bits and two fields
  private val PacketField = 1

  /** Arrow and unsafe rows align to eight bytes. */
  def padded(length: Int): Int = (length + 7) & ~7

  private def aligned(metadata: ByteBuffer): ByteBuffer = {
    val whole = ByteBuffer.allocate(padded(metadata.remaining))
    whole.put(metadata)
    whole.clear()
  }

  private def rowOf(partition: Int, bytes: Array[Byte], length: Int): UnsafeRow = {
    Platform.putLong(bytes, Platform.BYTE_ARRAY_OFFSET + 8L, partition)
    Platform.putLong(bytes, Platform.BYTE_ARRAY_OFFSET + 16L, (RowBytes.toLong << 32) | length)
    val row = new UnsafeRow(2)
    row.pointTo(bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length)
    row
  }

  /** The message of a packet in a row that has been read from a shuffle, without a copy. */
  def messageOf(row: UnsafeRow): ByteBuffer = row.getBaseObject match {
    case bytes: Array[Byte] =>
      val place = row.getLong(PacketField)
      val start = (row.getBaseOffset - Platform.BYTE_ARRAY_OFFSET + (place >>> 32)).toInt
      ByteBuffer.wrap(bytes, start, place.toInt)
    case _ => ByteBuffer.wrap(row.getBinary(PacketField))
  }
}
