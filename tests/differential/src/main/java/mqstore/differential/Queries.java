package mqstore.differential;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.util.List;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.store.DefaultMessageFilter;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.index.IndexService;
import org.apache.rocketmq.store.index.QueryOffsetResult;

/** Asks an opened store and gives RocketMQ's answer, status and all. */
final class Queries {
    private static final String GROUP = "differential";

    private final OpenStore opened;
    private final DefaultMessageStore store;
    private final IndexService index;

    Queries(OpenStore opened) throws ReflectiveOperationException {
        this.opened = opened;
        this.store = opened.store;
        // The raw offsets, newest first, are seen nowhere else: the store sorts them before it answers.
        Field field = DefaultMessageStore.class.getDeclaredField("indexService");
        field.setAccessible(true);
        index = (IndexService) field.get(store);
    }

    JSONObject ask(JSONObject query) throws Exception {
        JSONObject row = new JSONObject();
        row.put("query", query);
        row.put("result", switch (query.getString("op")) {
            case "cq" -> byQueue(query);
            case "time" -> byTime(query);
            case "key", "uniq" -> byKey(query);
            case "phy" -> byOffset(query);
            default -> throw new IllegalArgumentException("op " + query.getString("op"));
        });
        return row;
    }

    private JSONObject byQueue(JSONObject query) throws Exception {
        String topic = query.getString("topic");
        String tags = query.getString("tags");
        MessageFilter filter = tags == null ? null
            : new DefaultMessageFilter(FilterAPI.buildSubscriptionData(topic, tags));
        GetMessageResult got = store.getMessage(GROUP, topic, query.getIntValue("queueId"),
            query.getLongValue("from"), query.getIntValue("max"), filter);
        try {
            JSONObject result = new JSONObject();
            result.put("status", got.getStatus().name());
            result.put("nextBeginOffset", got.getNextBeginOffset());
            result.put("minOffset", got.getMinOffset());
            result.put("maxOffset", got.getMaxOffset());
            result.put("bufferTotalSize", got.getBufferTotalSize());
            result.put("messageCount", got.getMessageCount());
            JSONArray messages = new JSONArray();
            List<ByteBuffer> buffers = got.getMessageBufferList();
            for (int i = 0; i < buffers.size(); i++) {
                JSONObject message = summary(buffers.get(i));
                message.put("cqOffset", got.getMessageQueueOffset().get(i));
                messages.add(message);
            }
            result.put("messages", messages);
            return result;
        } finally {
            got.release();
        }
    }

    private JSONObject byTime(JSONObject query) {
        BoundaryType boundary = "upper".equals(query.getString("boundary")) ? BoundaryType.UPPER : BoundaryType.LOWER;
        JSONObject result = new JSONObject();
        result.put("offset", store.getOffsetInQueueByTime(query.getString("topic"), query.getIntValue("queueId"),
            query.getLongValue("timestamp"), boundary));
        return result;
    }

    private JSONObject byKey(JSONObject query) {
        String topic = query.getString("topic");
        String key = query.getString("key");
        long begin = query.getLongValue("begin", 0);
        long end = query.getLongValue("end", Long.MAX_VALUE);
        int max = query.getIntValue("max");
        QueryOffsetResult offsets = index.queryOffset(topic, key,
            Math.min(max, opened.config.getMaxMsgsNumBatch()), begin, end);
        JSONObject result = new JSONObject();
        result.put("phyOffsets", new JSONArray(offsets.getPhyOffsets()));
        result.put("indexLastUpdateTimestamp", offsets.getIndexLastUpdateTimestamp());
        result.put("indexLastUpdatePhyoffset", offsets.getIndexLastUpdatePhyoffset());
        QueryMessageResult got = store.queryMessage(topic, key, max, begin, end);
        try {
            JSONArray messages = new JSONArray();
            for (ByteBuffer buffer : got.getMessageBufferList()) {
                messages.add(summary(buffer));
            }
            result.put("messages", messages);
            return result;
        } finally {
            got.release();
        }
    }

    private JSONObject byOffset(JSONObject query) {
        JSONObject result = new JSONObject();
        MessageExt message = store.lookMessageByOffset(query.getLongValue("phyOffset"));
        result.put("found", message != null);
        result.put("message", message == null ? null : summary(message));
        return result;
    }

    private static JSONObject summary(ByteBuffer bytes) {
        return summary(MessageDecoder.decode(bytes.duplicate(), true, false));
    }

    private static JSONObject summary(MessageExt message) {
        JSONObject row = new JSONObject();
        row.put("phyOffset", message.getCommitLogOffset());
        row.put("queueOffset", message.getQueueOffset());
        row.put("totalSize", message.getStoreSize());
        row.put("topic", message.getTopic());
        row.put("queueId", message.getQueueId());
        row.put("storeTimestamp", message.getStoreTimestamp());
        row.put("tags", message.getTags());
        row.put("keys", message.getKeys());
        row.put("uniqKey", message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX));
        row.put("msgId", message.getMsgId());
        return row;
    }
}
