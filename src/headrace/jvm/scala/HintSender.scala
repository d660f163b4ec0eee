package org.apache.spark.sql.headrace

import java.io.IOException
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.channels.SocketChannel

/**
 * Sends hashes to the state host of this machine, without ever waiting for it: what the socket does not take is
 * dropped. Hashes of frequent keys are left out, because their state is in memory. One sender serves one task.
 */
class HintSender(settings: Settings, header: String, timed: Boolean, hot: Int) {
  private val filter = Filters.mine.get()
  private val buffer = ByteBuffer.allocate(HintSender.bytes).order(ByteOrder.LITTLE_ENDIAN)
  private val entry = if (timed) 16 else 8
  private var channel: SocketChannel = open()

  def see(hash: Long, timeUs: Long): Unit =
    if (channel != null && filter.passes(hash, hot)) {
      if (buffer.remaining < entry) flush()
      if (channel != null && buffer.remaining >= entry) {
        buffer.putLong(hash)
        if (timed) buffer.putLong(timeUs)
      }
    }

  /** Writes what the socket takes now. Whole entries that it does not take are dropped; a part of one is kept. */
  private def flush(): Unit = {
    buffer.flip()
    try channel.write(buffer)
    catch { case _: IOException => drop() }
    val part = buffer.remaining % entry
    buffer.limit(buffer.position() + part)
    buffer.compact()
  }

  /** Only a host that this executor knows gets hints: none is started for them. */
  private def open(): SocketChannel =
    try
      Hosts.known(settings).map { door =>
        val opened = Frames.connect(door)
        val request = Json.empty.put("secret", settings.secret)
        request.set[com.fasterxml.jackson.databind.JsonNode]("hints", Json.read(header))
        Frames.send(opened, request)
        opened.configureBlocking(false)
        opened
      }.orNull
    catch { case _: IOException => null }

  private def drop(): Unit = {
    try channel.close() catch { case _: IOException => }
    channel = null
  }

  def close(): Unit = if (channel != null) {
    flush()
    if (channel != null) drop()
  }
}

object HintSender {
  private val bytes = 1 << 15
}

/** One filter per executor thread. */
object Filters {
  val mine: ThreadLocal[HotFilter] = ThreadLocal.withInitial(() => new HotFilter())
}
