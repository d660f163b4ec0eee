package org.apache.spark.sql.headrace

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{BoundReference, Expression, UnaryExpression, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.types.{BinaryType, DataType}

/**
 * A value of any type as bytes: an `UnsafeRow` of one column, which is also what Spark's own state stores keep.
 * Keys are normalised first, so that equal keys have equal bytes.
 */
case class Packed(child: Expression, isKey: Boolean) extends UnaryExpression with CodegenFallback {
  @transient private lazy val projection: UnsafeProjection = {
    val value = BoundReference(0, child.dataType, nullable = true)
    UnsafeProjection.create(Seq(if (isKey) Internals.normalised(value) else value))
  }

  override def dataType: DataType = BinaryType
  override def nullIntolerant: Boolean = true
  override def stateful: Boolean = true // the projection reuses its buffer
  override def prettyName: String = "headrace_packed"
  override protected def nullSafeEval(value: Any): Any = projection(InternalRow(value)).copy().getBytes
  override protected def withNewChildInternal(newChild: Expression): Packed = copy(child = newChild)
}

/** The value that `Packed` made bytes of. */
case class Unpacked(child: Expression, dataType: DataType) extends UnaryExpression with CodegenFallback {
  override def nullIntolerant: Boolean = true
  override def nullable: Boolean = true
  override def prettyName: String = "headrace_unpacked"
  override protected def nullSafeEval(value: Any): Any = {
    val bytes = value.asInstanceOf[Array[Byte]]
    val row = new UnsafeRow(1)
    row.pointTo(bytes, bytes.length)
    row.get(0, dataType)
  }
  override protected def withNewChildInternal(newChild: Expression): Unpacked = copy(child = newChild)
}
