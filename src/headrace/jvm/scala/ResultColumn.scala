package org.apache.spark.sql.headrace

import org.apache.arrow.vector.{DecimalVector, FieldVector}

import org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/** One column of an Arrow batch of results, copied value by value into unsafe rows. */
abstract class ResultColumn(vector: FieldVector, ordinal: Int) {
  protected val data: Long = vector.getDataBuffer.memoryAddress
  private val validity = if (vector.getNullCount == 0) 0L else vector.getValidityBuffer.memoryAddress

  final def copy(at: Int, row: UnsafeRowWriter): Unit =
    if (validity != 0L && (Platform.getByte(null, validity + (at >> 3)) >> (at & 7) & 1) == 0) row.setNullAt(ordinal)
    else put(at, row)

  protected def put(at: Int, row: UnsafeRowWriter): Unit
}

final class LongResult(vector: FieldVector, ordinal: Int) extends ResultColumn(vector, ordinal) {
  override protected def put(at: Int, row: UnsafeRowWriter): Unit = row.write(ordinal, Platform.getLong(null, data + at * 8L))
}

final class IntResult(vector: FieldVector, ordinal: Int) extends ResultColumn(vector, ordinal) {
  override protected def put(at: Int, row: UnsafeRowWriter): Unit = row.write(ordinal, Platform.getInt(null, data + at * 4L))
}

final class ShortResult(vector: FieldVector, ordinal: Int) extends ResultColumn(vector, ordinal) {
  override protected def put(at: Int, row: UnsafeRowWriter): Unit = row.write(ordinal, Platform.getShort(null, data + at * 2L))
}

final class ByteResult(vector: FieldVector, ordinal: Int) extends ResultColumn(vector, ordinal) {
  override protected def put(at: Int, row: UnsafeRowWriter): Unit = row.write(ordinal, Platform.getByte(null, data + at))
}

final class BitResult(vector: FieldVector, ordinal: Int) extends ResultColumn(vector, ordinal) {
  override protected def put(at: Int, row: UnsafeRowWriter): Unit =
    row.write(ordinal, (Platform.getByte(null, data + (at >> 3)) >> (at & 7) & 1) == 1)
}

final class DecimalResult(vector: DecimalVector, ordinal: Int, kind: DecimalType) extends ResultColumn(vector, ordinal) {
  override protected def put(at: Int, row: UnsafeRowWriter): Unit =
    row.write(ordinal, Decimal(vector.getObject(at), kind.precision, kind.scale), kind.precision, kind.scale)
}

/** Strings and binary values, which unsafe rows hold alike. */
final class BytesResult(vector: FieldVector, ordinal: Int) extends ResultColumn(vector, ordinal) {
  private val offsets = vector.getOffsetBuffer.memoryAddress
  override protected def put(at: Int, row: UnsafeRowWriter): Unit = {
    val start = Platform.getInt(null, offsets + at * 4L)
    row.write(ordinal, UTF8String.fromAddress(null, data + start, Platform.getInt(null, offsets + at * 4L + 4) - start))
  }
}

object ResultColumn {
  /** The column of a vector; None for lists, which Spark's own classes read. */
  def of(vector: FieldVector, kind: DataType, ordinal: Int): Option[ResultColumn] = (kind, vector) match {
    case (LongType | DoubleType | TimestampType | TimestampNTZType | _: DayTimeIntervalType, _) =>
      Some(new LongResult(vector, ordinal))
    case (IntegerType | FloatType | DateType, _) => Some(new IntResult(vector, ordinal))
    case (ShortType, _) => Some(new ShortResult(vector, ordinal))
    case (ByteType, _) => Some(new ByteResult(vector, ordinal))
    case (BooleanType, _) => Some(new BitResult(vector, ordinal))
    case (decimal: DecimalType, values: DecimalVector) => Some(new DecimalResult(values, ordinal, decimal))
    case (_: StringType | BinaryType, _) => Some(new BytesResult(vector, ordinal))
    case _ => None
  }
}
