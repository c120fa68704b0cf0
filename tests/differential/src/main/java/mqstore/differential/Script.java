package mqstore.differential;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;

/** Puts the lines of a script into a store, each with its own pinned store time. */
final class Script {
    private Script() {
    }

    /** Puts one line and tells what the store answered. */
    static JSONObject put(DefaultMessageStore store, JSONObject line, int index) throws UnknownHostException {
        PutMessageResult result;
        if (line.containsKey("batch") && !"inner".equals(line.getString("batchKind"))) {
            result = store.putMessages(outerBatch(line));
        } else {
            result = store.putMessage(single(line));
        }
        JSONObject row = new JSONObject();
        row.put("i", index);
        row.put("status", result.getPutMessageStatus().name());
        if (result.getAppendMessageResult() != null) {
            row.put("appendStatus", result.getAppendMessageResult().getStatus().name());
            row.put("wroteOffset", result.getAppendMessageResult().getWroteOffset());
            row.put("wroteBytes", result.getAppendMessageResult().getWroteBytes());
            row.put("msgId", result.getAppendMessageResult().getMsgId());
            row.put("logicsOffset", result.getAppendMessageResult().getLogicsOffset());
            row.put("msgNum", result.getAppendMessageResult().getMsgNum());
            row.put("storeTimestamp", result.getAppendMessageResult().getStoreTimestamp());
        }
        return row;
    }

    private static MessageExtBrokerInner single(JSONObject line) throws UnknownHostException {
        MessageExtBrokerInner message = new PinnedMessage(line.getLong("storeTimestamp"));
        common(message, line);
        Map<String, String> properties = properties(line);
        if ("inner".equals(line.getString("batchKind"))) {
            List<Message> items = items(line);
            message.setBody(MessageDecoder.encodeMessages(items));
            message.setSysFlag(message.getSysFlag() | MessageSysFlag.INNER_BATCH_FLAG
                | MessageSysFlag.NEED_UNWRAP_FLAG);
            properties.put(MessageConst.PROPERTY_INNER_NUM, String.valueOf(items.size()));
        } else {
            message.setBody(body(line));
        }
        message.setPreparedTransactionOffset(line.getLongValue("preparedTransactionOffset"));
        if (line.containsKey("propertiesString")) {
            String raw = line.getString("propertiesString");
            MessageAccessor.setProperties(message, MessageDecoder.string2messageProperties(raw));
            message.setPropertiesString(raw);
        } else {
            MessageAccessor.setProperties(message, properties);
            message.setPropertiesString(MessageDecoder.messageProperties2String(properties));
        }
        return message;
    }

    private static MessageExtBatch outerBatch(JSONObject line) throws UnknownHostException {
        MessageExtBatch batch = new PinnedBatch(line.getLong("storeTimestamp"));
        common(batch, line);
        MessageAccessor.setProperties(batch, properties(line));
        batch.setBody(MessageDecoder.encodeMessages(items(line)));
        return batch;
    }

    private static void common(MessageExt message, JSONObject line) throws UnknownHostException {
        message.setTopic(line.getString("topic"));
        message.setQueueId(line.getIntValue("queueId"));
        message.setFlag(line.getIntValue("flag"));
        message.setSysFlag(line.getIntValue("sysFlag") | transaction(line.getString("transaction")));
        message.setReconsumeTimes(line.getIntValue("reconsumeTimes"));
        message.setBornTimestamp(line.getLongValue("bornTimestamp"));
        message.setBornHost(host(line.getString("bornHost")));
        message.setStoreHost(host(line.getString("storeHost")));
    }

    private static List<Message> items(JSONObject line) {
        List<Message> items = new ArrayList<>();
        JSONArray array = line.getJSONArray("batch");
        for (int i = 0; i < array.size(); i++) {
            JSONObject item = array.getJSONObject(i);
            Message message = new Message();
            message.setTopic(line.getString("topic"));
            message.setFlag(item.getIntValue("flag"));
            message.setBody(body(item));
            MessageAccessor.setProperties(message, properties(item));
            items.add(message);
        }
        return items;
    }

    /** TAGS, KEYS, UNIQ_KEY, DELAY, then the caller's own in the caller's order. */
    static Map<String, String> properties(JSONObject line) {
        Map<String, String> properties = new LinkedHashMap<>();
        putIfGiven(properties, MessageConst.PROPERTY_TAGS, line.getString("tags"));
        putIfGiven(properties, MessageConst.PROPERTY_KEYS, line.getString("keys"));
        putIfGiven(properties, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, line.getString("uniqKey"));
        putIfGiven(properties, MessageConst.PROPERTY_DELAY_TIME_LEVEL, line.getString("delayLevel"));
        JSONObject own = line.getJSONObject("properties");
        if (own != null) {
            own.forEach((name, value) -> properties.put(name, String.valueOf(value)));
        }
        return properties;
    }

    private static void putIfGiven(Map<String, String> properties, String name, String value) {
        if (value != null) {
            properties.put(name, value);
        }
    }

    static byte[] body(JSONObject line) {
        if (line.containsKey("bodyText")) {
            return line.getString("bodyText").getBytes(StandardCharsets.UTF_8);
        }
        return Base64.getDecoder().decode(line.getString("body"));
    }

    private static int transaction(String name) {
        if (name == null) {
            return MessageSysFlag.TRANSACTION_NOT_TYPE;
        }
        return switch (name) {
            case "prepared" -> MessageSysFlag.TRANSACTION_PREPARED_TYPE;
            case "commit" -> MessageSysFlag.TRANSACTION_COMMIT_TYPE;
            case "rollback" -> MessageSysFlag.TRANSACTION_ROLLBACK_TYPE;
            default -> throw new IllegalArgumentException("transaction " + name);
        };
    }

    /** "1.2.3.4:10911" or "[v6]:10911"; never a name that would have to be looked up. */
    static InetSocketAddress host(String text) throws UnknownHostException {
        int colon = text.lastIndexOf(':');
        String address = text.substring(0, colon);
        if (!address.startsWith("[") && !address.chars().allMatch(c -> c == '.' || Character.isDigit(c))) {
            throw new UnknownHostException(text);
        }
        return new InetSocketAddress(InetAddress.getByName(address), Integer.parseInt(text.substring(colon + 1)));
    }

    /** A message whose store time nobody can move; the store sets its own clock's time inside its lock. */
    private static final class PinnedMessage extends MessageExtBrokerInner {
        private final Long pinned;

        PinnedMessage(Long pinned) {
            this.pinned = pinned;
        }

        @Override
        public void setStoreTimestamp(long ignored) {
            super.setStoreTimestamp(pinned == null ? ignored : pinned);
        }
    }

    /** The same for a batch. */
    private static final class PinnedBatch extends MessageExtBatch {
        private final Long pinned;

        PinnedBatch(Long pinned) {
            this.pinned = pinned;
        }

        @Override
        public void setStoreTimestamp(long ignored) {
            super.setStoreTimestamp(pinned == null ? ignored : pinned);
        }
    }
}
