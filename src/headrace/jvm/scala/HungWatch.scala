package org.apache.spark.sql.headrace

import java.io.IOException
import java.util.concurrent.{CompletableFuture, TimeUnit, TimeoutException}

/**
 * Pings this machine's host while it lives. A host that does not answer for `hungSeconds` is replaced: tasks that
 * wait for it would wait for ever. The thread ends with the host.
 */
class HungWatch(door: String, settings: Settings, replace: () => Unit) extends Thread("headrace-host-watch") {
  setDaemon(true)

  override def run(): Unit =
    try {
      while (answers()) Thread.sleep(settings.watchMs)
      replace()
    } catch {
      case _: IOException => Hosts.drop(settings, door) // it has ended, and its tasks fail by themselves
      case error: Exception => System.err.println(s"the state host behind $door is not watched any more: $error")
    }

  private def answers(): Boolean = {
    val ping = CompletableFuture.runAsync(() => this.ping())
    try { ping.get(settings.hungMs, TimeUnit.MILLISECONDS); true }
    catch {
      case _: TimeoutException => false
      case failed: java.util.concurrent.ExecutionException => throw new IOException(failed.getCause)
    }
  }

  private def ping(): Unit = {
    val channel = Frames.connect(door)
    try { Frames.send(channel, Json.empty.put("secret", settings.secret).put("ping", true)); Frames.receive(channel) }
    finally channel.close()
  }
}
