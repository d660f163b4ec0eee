package org.apache.spark.sql.headrace

import java.io.File
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}
import java.util.concurrent.ConcurrentHashMap
import java.util.zip.CRC32

import org.apache.spark.SparkFiles
import org.apache.spark.api.python.PythonUtils

/**
 * The door of this machine's state host. A short Python process finds the host or starts it, under the file
 * lock that all tasks of the machine share; the address is kept until a connection to it fails.
 */
object Hosts {
  private val doors = new ConcurrentHashMap[String, String]()

  def door(settings: Settings): String = {
    val key = settings.host(machine(settings.hostPer)).toString
    doors.computeIfAbsent(key, _ => ensure(settings))
  }

  def forget(settings: Settings, door: String): Unit =
    doors.remove(settings.host(machine(settings.hostPer)).toString, door)

  /** The name that tasks of one machine share; the same as `spark/task/machine.py` gives. */
  def machine(per: String): String = {
    val boot = new CRC32()
    boot.update(first("/proc/sys/kernel/random/boot_id").getOrElse("").getBytes(UTF_8))
    val host = first("/proc/sys/kernel/hostname").getOrElse(java.net.InetAddress.getLocalHost.getHostName)
    val name = f"${host.take(24)}-${boot.getValue}%08x"
    if (per == "executor") s"$name-x${ProcessHandle.current().pid()}" else name
  }

  private def first(path: String): Option[String] =
    try Some(Files.readString(Path.of(path)).trim) catch { case _: java.io.IOException => None }

  private def ensure(settings: Settings): String = {
    val builder = new ProcessBuilder(settings.python, "-m", "headrace.host.ensure")
    val environment = builder.environment()
    settings.environment.foreach { case (name, value) => environment.put(name, value) }
    environment.put("PYTHONPATH", pythonPath(settings, Option(environment.get("PYTHONPATH")).getOrElse("")))
    builder.redirectError(ProcessBuilder.Redirect.INHERIT)
    val process = builder.start()
    val stdin = process.getOutputStream
    stdin.write(Json.bytes(settings.host(machine(settings.hostPer))))
    stdin.close()
    val printed = new String(process.getInputStream.readAllBytes(), UTF_8)
    val code = process.waitFor()
    if (printed.isBlank) {
      throw Failure(
        "HostUnavailable",
        s"${settings.python} -m headrace.host.ensure ended with code $code and no answer",
        "the executors' Python must have headrace installed; its standard error is in the executor's log")
    }
    val answer = Json.read(printed)
    if (answer.has("error")) throw Failure.of(answer)
    answer.get("door").asText
  }

  /** As Spark's own Python workers see modules: files given to Spark first, then Spark's Python. */
  private def pythonPath(settings: Settings, inherited: String): String = {
    val root = SparkFiles.getRootDirectory()
    val files = root +: settings.pythonFiles.map(name => new File(root, name).getPath)
    (files :+ inherited :+ PythonUtils.sparkPythonPath).filter(_.nonEmpty).mkString(File.pathSeparator)
  }
}
