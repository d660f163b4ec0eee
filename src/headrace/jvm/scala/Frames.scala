package org.apache.spark.sql.headrace

import java.io.EOFException
import java.net.{InetSocketAddress, StandardProtocolFamily, UnixDomainSocketAddress}
import java.nio.ByteBuffer
import java.nio.channels.SocketChannel

import com.fasterxml.jackson.databind.JsonNode

/** JSON in frames: four bytes of length, then UTF-8. Addresses are a path or `host:port`. */
object Frames {
  private val largest = 64 << 20

  def connect(address: String): SocketChannel =
    if (address.startsWith("/")) {
      opened(SocketChannel.open(StandardProtocolFamily.UNIX), UnixDomainSocketAddress.of(address))
    } else {
      val at = address.lastIndexOf(':')
      val target = new InetSocketAddress(address.substring(0, at), address.substring(at + 1).toInt)
      val channel = opened(SocketChannel.open(), target)
      channel.setOption[java.lang.Boolean](java.net.StandardSocketOptions.TCP_NODELAY, true)
      channel
    }

  private def opened(channel: SocketChannel, target: java.net.SocketAddress): SocketChannel =
    try { channel.connect(target); channel }
    catch { case error: Throwable => channel.close(); throw error }

  def send(channel: SocketChannel, node: JsonNode): Unit = {
    val body = Json.bytes(node)
    val frame = ByteBuffer.allocate(4 + body.length)
    frame.putInt(body.length).put(body).flip()
    put(channel, frame)
  }

  def put(channel: SocketChannel, bytes: ByteBuffer): Unit = while (bytes.hasRemaining) channel.write(bytes)

  def receive(channel: SocketChannel): JsonNode = {
    val length = exactly(channel, 4).getInt
    if (length < 0 || length > largest) throw new EOFException(s"a frame of $length bytes")
    Json.read(new String(exactly(channel, length).array(), java.nio.charset.StandardCharsets.UTF_8))
  }

  def exactly(channel: SocketChannel, count: Int): ByteBuffer = {
    val bytes = ByteBuffer.allocate(count)
    while (bytes.hasRemaining)
      if (channel.read(bytes) < 0) throw new EOFException("the other side closed the connection")
    bytes.flip()
  }
}
