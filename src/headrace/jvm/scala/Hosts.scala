package org.apache.spark.sql.headrace

import java.io.File
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}
import java.util.concurrent.ConcurrentHashMap
import java.util.zip.CRC32

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.SparkFiles
import org.apache.spark.api.python.PythonUtils

/**
 * The door of this machine's state host. A short Python process finds the host or starts it, under the file
 * lock that all tasks of the machine share; the address stays until a connection to it fails.
 */
object Hosts {
  private val doors = new ConcurrentHashMap[String, String]()
  private val ended = new ConcurrentHashMap[String, Long]()

  def door(settings: Settings): String = {
    val key = settings.host(machine(settings.hostPer)).toString
    doors.computeIfAbsent(key, _ => {
      val door = ensure(settings).get("door").asText
      new HungWatch(door, settings, () => replace(settings, door)).start()
      door
    })
  }

  /** The process of the host that hung behind this door and was ended; empty if none was. */
  def endedProcess(door: String): Option[Long] = Option(ended.get(door))

  private def replace(settings: Settings, door: String): Unit = {
    val answer = ensure(settings, "hung")
    if (!answer.get("ended").isNull) ended.put(door, answer.get("ended").asLong)
    drop(settings, door)
  }

  /** The door of a host that was used before. */
  def known(settings: Settings): Option[String] =
    Option(doors.get(settings.host(machine(settings.hostPer)).toString))

  def drop(settings: Settings, door: String): Unit =
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

  private def ensure(settings: Settings, how: String*): JsonNode = {
    val command = Seq(settings.python, "-m", "headrace.host.ensure") ++ how
    val builder = new ProcessBuilder(command: _*)
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
    answer
  }

  /** As Spark's own Python workers see modules: files given to Spark first, then Spark's Python. */
  private def pythonPath(settings: Settings, inherited: String): String = {
    val root = SparkFiles.getRootDirectory()
    val files = root +: settings.pythonFiles.map(name => new File(root, name).getPath)
    (files :+ inherited :+ PythonUtils.sparkPythonPath).filter(_.nonEmpty).mkString(File.pathSeparator)
  }
}
