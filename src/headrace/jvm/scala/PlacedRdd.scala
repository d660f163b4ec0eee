package org.apache.spark.sql.headrace

import org.apache.spark.{Partition, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow

/** What runs for one partition, on an executor. */
trait PartitionTask extends Serializable {
  def run(partition: Int, context: TaskContext, rows: Iterator[InternalRow]): Iterator[InternalRow]
}

/** Partitions that prefer the executors of the machine where their state is. */
class PlacedRdd(rows: RDD[InternalRow], task: PartitionTask, @transient places: Map[Int, Seq[String]])
    extends RDD[InternalRow](rows) {
  override protected def getPartitions: Array[Partition] = firstParent[InternalRow].partitions
  override protected def getPreferredLocations(split: Partition): Seq[String] =
    places.getOrElse(split.index, Nil)
  override def compute(split: Partition, context: TaskContext): Iterator[InternalRow] =
    task.run(split.index, context, firstParent[InternalRow].iterator(split, context))
}
