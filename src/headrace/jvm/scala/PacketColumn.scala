package org.apache.spark.sql.headrace

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.Platform

/** One column of a packet: values as Arrow lays them out, and a bit per row once a value was null. */
abstract class PacketColumn(ordinal: Int) {
  private var validity: Array[Byte] = Array.emptyByteArray
  var nulls: Int = 0

  /** Bytes of a row, without those of strings. */
  def width: Int

  /** Add the row's value as number `at`; returns the bytes beside `width` that it takes. */
  final def add(row: UnsafeRow, at: Int): Long =
    if (row.isNullAt(ordinal)) { mark(at); put(null, at) } else put(row, at)

  /** Write the value of a row, or zeros for a null. */
  protected def put(row: UnsafeRow, at: Int): Long

  /** Arrow's buffers of the first `count` values. */
  final def buffers(count: Int): Seq[FilledBuffer] = {
    val bits = (count + 7) / 8
    if (nulls > 0) validity = PacketColumn.grown(validity, bits, -1)
    new FilledBuffer(validity, if (nulls > 0) bits else 0) +: values(count)
  }

  protected def values(count: Int): Seq[FilledBuffer]

  def clear(): Unit = {
    if (nulls > 0) java.util.Arrays.fill(validity, (-1).toByte)
    nulls = 0
  }

  private def mark(at: Int): Unit = {
    validity = PacketColumn.grown(validity, at / 8 + 1, -1)
    validity(at / 8) = (validity(at / 8) & ~(1 << (at % 8))).toByte
    nulls += 1
  }
}

/** Values of 1, 2, 4, 8 or 16 bytes. */
abstract class FixedColumn(ordinal: Int, val width: Int) extends PacketColumn(ordinal) {
  protected var data: Array[Byte] = Array.emptyByteArray

  override protected def put(row: UnsafeRow, at: Int): Long = {
    val start = at * width
    if (start + width > data.length) data = PacketColumn.grown(data, start + width, 0)
    val place = Platform.BYTE_ARRAY_OFFSET + start.toLong
    if (row == null) zero(place) else copy(row, place)
    0L
  }
  private def zero(place: Long): Unit = Platform.setMemory(data, place, width, 0)
  protected def copy(row: UnsafeRow, place: Long): Unit
  override protected def values(count: Int): Seq[FilledBuffer] = Seq(new FilledBuffer(data, count * width))
}

final class LongColumn(ordinal: Int) extends FixedColumn(ordinal, 8) {
  override protected def copy(row: UnsafeRow, place: Long): Unit = Platform.putLong(data, place, row.getLong(ordinal))
}

final class IntColumn(ordinal: Int) extends FixedColumn(ordinal, 4) {
  override protected def copy(row: UnsafeRow, place: Long): Unit = Platform.putInt(data, place, row.getInt(ordinal))
}

final class ShortColumn(ordinal: Int) extends FixedColumn(ordinal, 2) {
  override protected def copy(row: UnsafeRow, place: Long): Unit = Platform.putShort(data, place, row.getShort(ordinal))
}

final class ByteColumn(ordinal: Int) extends FixedColumn(ordinal, 1) {
  override protected def copy(row: UnsafeRow, place: Long): Unit = Platform.putByte(data, place, row.getByte(ordinal))
}

/** Decimals: 16 bytes, the lowest first. */
final class DecimalColumn(ordinal: Int, kind: DecimalType) extends FixedColumn(ordinal, 16) {
  override protected def copy(row: UnsafeRow, place: Long): Unit = {
    val value = row.getDecimal(ordinal, kind.precision, kind.scale).toJavaBigDecimal.setScale(kind.scale).unscaledValue
    Platform.putLong(data, place, value.longValue)
    Platform.putLong(data, place + 8, value.shiftRight(64).longValue)
  }
}

/** Booleans: one bit each. */
final class BitColumn(ordinal: Int) extends PacketColumn(ordinal) {
  private var data: Array[Byte] = Array.emptyByteArray
  override def width: Int = 1

  override protected def put(row: UnsafeRow, at: Int): Long = {
    data = PacketColumn.grown(data, at / 8 + 1, 0)
    val bit = 1 << (at % 8)
    val set = row != null && row.getBoolean(ordinal)
    data(at / 8) = (if (set) data(at / 8) | bit else data(at / 8) & ~bit).toByte
    0L
  }
  override protected def values(count: Int): Seq[FilledBuffer] = Seq(new FilledBuffer(data, (count + 7) / 8))
}

/** Strings and binary values: offsets and one run of bytes. */
final class BytesColumn(ordinal: Int) extends PacketColumn(ordinal) {
  private var offsets: Array[Byte] = new Array[Byte](4)
  private var data: Array[Byte] = Array.emptyByteArray
  private var end = 0
  override def width: Int = 4

  override protected def put(row: UnsafeRow, at: Int): Long = {
    val start = end
    if (row != null) append(row)
    offsets = PacketColumn.grown(offsets, (at + 2) * 4, 0)
    Platform.putInt(offsets, Platform.BYTE_ARRAY_OFFSET + (at + 1) * 4L, end)
    (end - start).toLong
  }

  private def append(row: UnsafeRow): Unit = {
    val place = row.getLong(ordinal)
    val length = place.toInt
    data = PacketColumn.grown(data, Math.addExact(end, length), 0)
    Platform.copyMemory(
      row.getBaseObject, row.getBaseOffset + (place >>> 32), data, Platform.BYTE_ARRAY_OFFSET + end.toLong, length)
    end += length
  }
  override protected def values(count: Int): Seq[FilledBuffer] =
    Seq(new FilledBuffer(offsets, (count + 1) * 4), new FilledBuffer(data, end))
  /** The array of an unusually large value is not reused. */
  override def clear(): Unit = {
    super.clear()
    end = 0
    if (data.length > PacketColumn.ReusedBytes) data = Array.emptyByteArray
  }
}

object PacketColumn {
  private val LeastBytes = 1024
  val ReusedBytes: Int = 8 << 20

  /** The column of a type on the wire; `spark/language/types.py` lists them. */
  def of(kind: DataType, ordinal: Int): PacketColumn = kind match {
    case LongType | DoubleType | TimestampType | TimestampNTZType | _: DayTimeIntervalType => new LongColumn(ordinal)
    case IntegerType | FloatType | DateType => new IntColumn(ordinal)
    case ShortType => new ShortColumn(ordinal)
    case ByteType => new ByteColumn(ordinal)
    case BooleanType => new BitColumn(ordinal)
    case decimal: DecimalType => new DecimalColumn(ordinal, decimal)
    case _: StringType | BinaryType => new BytesColumn(ordinal)
    case other => throw new IllegalStateException(s"rows on the wire have no ${other.simpleString}")
  }

  /** An array of at least `length` bytes with the same beginning; new bytes have the given value. */
  def grown(bytes: Array[Byte], length: Int, value: Byte): Array[Byte] =
    if (bytes.length >= length) bytes
    else {
      val doubled = math.min(bytes.length * 2L, Int.MaxValue - 8L).toInt
      val larger = java.util.Arrays.copyOf(bytes, math.max(LeastBytes, math.max(length, doubled)))
      if (value != 0) java.util.Arrays.fill(larger, bytes.length, larger.length, value)
      larger
    }
}
