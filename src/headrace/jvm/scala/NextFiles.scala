package org.apache.spark.sql.headrace

import org.apache.hadoop.fs.Path

import org.apache.spark.paths.SparkPath
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.datasources.{HadoopFsRelation, InMemoryFileIndex, LogicalRelation}
import org.apache.spark.sql.execution.streaming.runtime.FileStreamSource

/**
 * The files that the next batch of a file source will read: those that it has listed and not read yet, in its order
 * and within its limit. Called in the query's own thread, in which the source changes these lists.
 */
object NextFiles {
  /** A file as the source lists it; its own class is not accessible. */
  private case class Listed(path: SparkPath, size: Long, timestamp: Long)

  def isSource(leaf: LogicalPlan): Boolean = leaf match {
    case LogicalRelation(_: HadoopFsRelation, _, _, true, Some(_: FileStreamSource)) => true
    case _ => false
  }

  /** The relation of a batch over the files of the next one. */
  def of(leaf: LogicalPlan, session: SparkSession): Option[LogicalPlan] = leaf match {
    case relation @ LogicalRelation(files: HadoopFsRelation, _, _, true, Some(source: FileStreamSource)) =>
      val paths = next(source)
      if (paths.isEmpty) None
      else {
        val index = new InMemoryFileIndex(session, paths, files.options, Some(files.schema))
        Some(relation.copy(relation = files.copy(location = index)(session), isStreaming = false, stream = None))
      }
    case _ => None
  }

  private def next(source: FileStreamSource): Seq[Path] = {
    val listed = entries(source, "unreadFiles").orElse(entries(source, "allFilesForTriggerAvailableNow")).getOrElse(Nil)
    val fresh = listed.filter(file => source.seenFiles.isNewFile(file.path, file.timestamp))
    val many = field(source, "maxFilesPerBatch").asInstanceOf[Option[Int]]
    val bytes = field(source, "maxBytesPerBatch").asInstanceOf[Option[Long]]
    val sizes = fresh.scanLeft(0L)(_ + _.size)
    val within = bytes.fold(fresh)(limit => fresh.zip(sizes).takeWhile(_._2 < limit).map(_._1))
    many.fold(within)(within.take).map(_.path.toPath)
  }

  private def entries(source: FileStreamSource, name: String): Option[Seq[Listed]] =
    Option(field(source, name).asInstanceOf[Seq[Product]]).map(_.map(entry => Listed(
      entry.productElement(0).asInstanceOf[SparkPath],
      entry.productElement(1).asInstanceOf[Long],
      entry.productElement(2).asInstanceOf[Long])))

  private def field(source: FileStreamSource, name: String): AnyRef = {
    val known = classOf[FileStreamSource].getDeclaredField(name)
    known.setAccessible(true)
    known.get(source)
  }
}
