package org.apache.spark.sql.headrace

/**
 * A Count-Min sketch of four rows of 8,192 one-byte counters that stop at 255 and are halved every 65,536 hashes, and
 * a table of the 1,024 hashes seen last: 40 KB. A hash that all counters have more often than the threshold, or that was just seen, does
 * not pass. Not safe for several threads.
 */
class HotFilter {
  private val rows = Array.ofDim[Byte](4, 8192)
  private val last = new Array[Long](1024)
  private var seen = 0L

  def passes(hash: Long, threshold: Int): Boolean = {
    seen += 1
    if ((seen & 0xffff) == 0) halve()
    val least = count(hash)
    val at = (hash & 1023).toInt
    val repeated = last(at) == hash
    last(at) = hash
    least <= threshold && !repeated
  }

  /** Counts a hash; its least counter. */
  private def count(hash: Long): Int = {
    var (least, depth) = (255, 0)
    while (depth < 4) {
      val at = (hash >>> (depth * 13)).toInt & 8191
      val now = math.min(255, (rows(depth)(at) & 0xff) + 1)
      rows(depth)(at) = now.toByte
      least = math.min(least, now)
      depth += 1
    }
    least
  }

  private def halve(): Unit = {
    for (row <- rows; at <- row.indices) row(at) = ((row(at) & 0xff) >> 1).toByte
    java.util.Arrays.fill(last, 0L)
  }
}

object HotFilter {
  /** Where the driver chooses none. */
  val threshold = 64
}
