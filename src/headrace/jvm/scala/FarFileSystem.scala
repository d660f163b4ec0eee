package org.apache.spark.sql.headrace

import java.net.URI

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{DelegateToFileSystem, FileStatus, FSDataInputStream, FSDataOutputStream, Options, Path, RawLocalFileSystem}
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.util.Progressable

/** A local directory in which every request takes as long as on shared storage: `far:/folder`. For benchmarks. */
class FarFileSystem extends RawLocalFileSystem {
  override def getUri: URI = FarFileSystem.uri
  override def getScheme: String = "far"

  override def open(path: Path, buffer: Int): FSDataInputStream = after(super.open(path, buffer))
  override def create(
      path: Path, overwrite: Boolean, buffer: Int, copies: Short, block: Long, progress: Progressable): FSDataOutputStream =
    after(super.create(path, overwrite, buffer, copies, block, progress))
  override def rename(from: Path, to: Path): Boolean = after(super.rename(from, to))
  override protected def rename(from: Path, to: Path, options: Options.Rename*): Unit = after(super.rename(from, to, options: _*))
  override def delete(path: Path, recursive: Boolean): Boolean = after(super.delete(path, recursive))
  override def listStatus(path: Path): Array[FileStatus] = after(super.listStatus(path))
  override def mkdirs(path: Path): Boolean = after(super.mkdirs(path))
  override def getFileStatus(path: Path): FileStatus = after(super.getFileStatus(path))
  override def setPermission(path: Path, permission: FsPermission): Unit = () // else a shell command per file

  /** One request waits once, whatever calls it makes itself. */
  private def after[T](request: => T): T =
    if (FarFileSystem.isWithin.get) request
    else {
      FarFileSystem.isWithin.set(true)
      try {
        Thread.sleep(getConf.getLong(FarFileSystem.Latency, 0))
        request
      } finally FarFileSystem.isWithin.set(false)
    }
}

/** The same for callers of Hadoop's newer interface. */
class FarFiles(uri: URI, conf: Configuration) extends DelegateToFileSystem(uri, new FarFileSystem, conf, "far", false)

object FarFileSystem {
  val Latency = "fs.far.latency.ms"
  private val uri = URI.create("far:///")
  private val isWithin = ThreadLocal.withInitial[Boolean](() => false)
}
