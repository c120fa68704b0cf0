package mqstore.differential;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.net.Inet6Address;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Consumer;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.ConsumeQueueExt;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.CqUnit;
import org.apache.rocketmq.store.queue.ReferredIterator;

/** Everything RocketMQ sees in a store: records and blanks in order, then each queue with its entries. */
final class Dump {
    private final OpenStore opened;
    private final Consumer<JSONObject> rows;

    private Dump(OpenStore opened, Consumer<JSONObject> rows) {
        this.opened = opened;
        this.rows = rows;
    }

    static void all(OpenStore opened, Consumer<JSONObject> rows) throws Exception {
        Dump dump = new Dump(opened, rows);
        dump.header();
        dump.records();
        for (ConsumeQueueInterface queue : opened.queues()) {
            rows.accept(queueRow(queue));
            dump.entries(queue);
        }
    }

    private void header() {
        JSONObject row = row("store");
        row.put("minPhyOffset", opened.store.getMinPhyOffset());
        row.put("maxPhyOffset", opened.store.getMaxPhyOffset());
        row.put("mappedFileSizeCommitLog", opened.config.getMappedFileSizeCommitLog());
        row.put("mappedFileSizeConsumeQueue", opened.config.getMappedFileSizeConsumeQueue());
        rows.accept(row);
    }

    private void records() throws Exception {
        CommitLog log = opened.store.getCommitLog();
        long fileSize = opened.config.getMappedFileSizeCommitLog();
        long offset = opened.store.getMinPhyOffset();
        long end = opened.store.getMaxPhyOffset();
        while (offset >= 0 && offset < end) {
            SelectMappedBufferResult result = log.getData(offset);
            if (result == null) {
                throw new IllegalStateException("no bytes at " + offset);
            }
            try {
                ByteBuffer bytes = result.getByteBuffer();
                DispatchRequest request = log.checkMessageAndReturnSize(bytes.duplicate(), false, false, true);
                if (!request.isSuccess()) {
                    throw new IllegalStateException("no record at " + offset);
                }
                if (request.getMsgSize() == 0) {
                    JSONObject blank = row("blank");
                    blank.put("phyOffset", offset);
                    blank.put("size", bytes.getInt(0));
                    rows.accept(blank);
                    offset = (offset / fileSize + 1) * fileSize;
                    continue;
                }
                rows.accept(message(bytes, request));
                offset += request.getMsgSize();
            } finally {
                result.release();
            }
        }
    }

    private static JSONObject message(ByteBuffer bytes, DispatchRequest request) throws Exception {
        MessageExt message = MessageDecoder.decode(bytes.duplicate(), true, false);
        int magic = bytes.getInt(4);
        byte[] raw = rawProperties(bytes, message, magic);
        JSONObject row = row("message");
        row.put("totalSize", message.getStoreSize());
        row.put("magic", "0x" + Integer.toHexString(magic));
        row.put("bodyCrc", message.getBodyCRC());
        row.put("queueId", message.getQueueId());
        row.put("flag", message.getFlag());
        row.put("queueOffset", message.getQueueOffset());
        row.put("phyOffset", message.getCommitLogOffset());
        row.put("sysFlag", message.getSysFlag());
        row.put("bornTimestamp", message.getBornTimestamp());
        row.put("bornHost", host(message.getBornHost()));
        row.put("storeTimestamp", message.getStoreTimestamp());
        row.put("storeHost", host(message.getStoreHost()));
        row.put("reconsumeTimes", message.getReconsumeTimes());
        row.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        row.put("body", base64(message.getBody()));
        row.put("topic", message.getTopic());
        row.put("propertiesRaw", base64(raw));
        row.put("layoutSize", request.getMsgSize());
        row.put("msgId", message.getMsgId());
        row.put("tags", message.getTags());
        row.put("keys", message.getKeys());
        row.put("uniqKey", message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX));
        row.put("properties", new TreeMap<>(properties(message)));
        if ((message.getSysFlag() & MessageSysFlag.NEED_UNWRAP_FLAG) != 0) {
            row.put("unwrapped", unwrapped(message));
        }
        row.put("tagsCode", request.getTagsCode());
        row.put("batchSize", request.getBatchSize());
        row.put("msgBaseOffset", request.getMsgBaseOffset());
        return row;
    }

    private static JSONArray unwrapped(MessageExt batch) throws Exception {
        List<MessageExt> items = new ArrayList<>();
        MessageDecoder.decodeMessage(batch, items);
        JSONArray array = new JSONArray();
        for (MessageExt item : items) {
            JSONObject row = new JSONObject();
            row.put("queueOffset", item.getQueueOffset());
            row.put("body", base64(item.getBody()));
            row.put("flag", item.getFlag());
            row.put("properties", new TreeMap<>(properties(item)));
            array.add(row);
        }
        return array;
    }

    /** The stored bytes of the properties: the last field, behind its length. */
    private static byte[] rawProperties(ByteBuffer bytes, MessageExt message, int magic) {
        int born = (message.getSysFlag() & MessageSysFlag.BORNHOST_V6_FLAG) == 0 ? 8 : 20;
        int store = (message.getSysFlag() & MessageSysFlag.STOREHOSTADDRESS_V6_FLAG) == 0 ? 8 : 20;
        int bodyAt = 68 + born + store;
        int topicAt = bodyAt + 4 + bytes.getInt(bodyAt);
        boolean second = magic == MessageDecoder.MESSAGE_MAGIC_CODE_V2;
        int topicLength = second ? bytes.getShort(topicAt) : bytes.get(topicAt);
        int lengthAt = topicAt + (second ? 2 : 1) + topicLength;
        byte[] raw = new byte[Math.max(0, bytes.getShort(lengthAt))];
        bytes.duplicate().position(lengthAt + 2).get(raw);
        return raw;
    }

    private static Map<String, String> properties(Message message) {
        Map<String, String> properties = message.getProperties();
        return properties == null ? Map.of() : properties;
    }

    static JSONObject queueRow(ConsumeQueueInterface queue) {
        JSONObject row = row("queue");
        row.put("topic", queue.getTopic());
        row.put("queueId", queue.getQueueId());
        row.put("cqType", queue.getCQType().name());
        row.put("minOffset", queue.getMinOffsetInQueue());
        row.put("maxOffset", queue.getMaxOffsetInQueue());
        row.put("maxPhysicOffset", queue.getMaxPhysicOffset());
        return row;
    }

    private void entries(ConsumeQueueInterface queue) {
        long offset = queue.getMinOffsetInQueue();
        long end = queue.getMaxOffsetInQueue();
        while (offset < end) {
            ReferredIterator<CqUnit> units = queue.iterateFrom(offset);
            if (units == null) {
                break;
            }
            long before = offset;
            try {
                // One call reaches to the end of one file.
                while (units.hasNext() && offset < end) {
                    CqUnit unit = units.next();
                    rows.accept(entry(queue, unit));
                    offset = unit.getQueueOffset() + unit.getBatchNum();
                }
            } finally {
                units.release();
            }
            if (offset == before) {
                break;
            }
        }
    }

    private static JSONObject entry(ConsumeQueueInterface queue, CqUnit unit) {
        JSONObject row = row("cq");
        row.put("topic", queue.getTopic());
        row.put("queueId", queue.getQueueId());
        row.put("offset", unit.getQueueOffset());
        row.put("phyOffset", unit.getPos());
        row.put("size", unit.getSize());
        row.put("tagsCode", unit.getTagsCode());
        if (queue.getCQType() == CQType.BatchCQ) {
            row.put("batchNum", unit.getBatchNum());
        }
        ConsumeQueueExt.CqExtUnit ext = unit.getCqExtUnit();
        if (ext != null) {
            JSONObject inner = new JSONObject();
            inner.put("size", ext.getSize());
            inner.put("tagsCode", ext.getTagsCode());
            inner.put("msgStoreTime", ext.getMsgStoreTime());
            inner.put("bitMap", ext.getFilterBitMap() == null ? null : base64(ext.getFilterBitMap()));
            row.put("ext", inner);
        }
        return row;
    }

    /** "1.2.3.4:10911" or "[v6]:10911". */
    static String host(SocketAddress address) {
        InetSocketAddress socket = (InetSocketAddress) address;
        String text = socket.getAddress().getHostAddress();
        return socket.getAddress() instanceof Inet6Address
            ? "[" + text + "]:" + socket.getPort() : text + ":" + socket.getPort();
    }

    static String base64(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes == null ? new byte[0] : bytes);
    }

    static JSONObject row(String type) {
        JSONObject row = new JSONObject();
        row.put("type", type);
        return row;
    }
}
