package org.apache.spark.sql.headrace

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.types.StructType

/**
 * Packets of the rows of one task, each for one partition; rows of a partition stay in their order.
 *
 * Invariant: buffered rows take at most `limits.totalBytes` and one row. Threads: the task's own.
 */
class Packer(
    rows: Iterator[UnsafeRow], numberOf: UnsafeRow => Int, partitions: Int, schema: StructType, limits: PacketLimits)
    extends Iterator[InternalRow] {
  private val buffers = new Array[PacketBuffer](partitions)
  private var bufferedBytes = 0L
  private var full: PacketBuffer = _
  private var drained = 0

  override def hasNext: Boolean = {
    while (full == null && rows.hasNext) add(rows.next())
    while (full == null && drained < partitions) {
      val buffer = buffers(drained)
      if (buffer == null || buffer.rows == 0) drained += 1 else full = buffer
    }
    full != null
  }

  override def next(): InternalRow = {
    if (!hasNext) throw new NoSuchElementException
    val packet = full
    full = null
    bufferedBytes -= packet.bytes
    packet.take()
  }

  private def add(row: UnsafeRow): Unit = {
    val number = numberOf(row)
    var buffer = buffers(number)
    if (buffer == null) {
      buffer = new PacketBuffer(number, schema)
      buffers(number) = buffer
    }
    val before = buffer.bytes
    buffer.add(row)
    bufferedBytes += buffer.bytes - before
    if (buffer.rows >= limits.rows || buffer.bytes >= limits.bytes) full = buffer
    else if (bufferedBytes >= limits.totalBytes) full = buffers.filter(_ != null).maxBy(_.bytes)
  }
}
