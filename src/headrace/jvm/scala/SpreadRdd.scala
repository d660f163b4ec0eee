package org.apache.spark.sql.headrace

import org.apache.spark.{Partition, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow

/** Empty partitions in place of an input that Spark has pruned because it has no rows. */
class SpreadRdd(rows: RDD[InternalRow], count: Int) extends RDD[InternalRow](rows.sparkContext, Nil) {
  override protected def getPartitions: Array[Partition] = Array.tabulate(count)(SpreadPartition(_))
  override def compute(split: Partition, context: TaskContext): Iterator[InternalRow] = Iterator.empty
}

case class SpreadPartition(index: Int) extends Partition
