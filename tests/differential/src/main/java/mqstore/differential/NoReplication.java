package mqstore.differential;

import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.remoting.protocol.body.HARuntimeInfo;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.ha.HAClient;
import org.apache.rocketmq.store.ha.HAConnection;
import org.apache.rocketmq.store.ha.HAConnectionStateNotificationRequest;
import org.apache.rocketmq.store.ha.HAService;
import org.apache.rocketmq.store.ha.WaitNotifyObject;

/**
 * Replication that does not exist. The usual service would listen on every address of the machine for slaves, and a
 * test has none.
 */
public final class NoReplication implements HAService {
    private final AtomicInteger connections = new AtomicInteger();
    private final AtomicLong pushed = new AtomicLong();
    private final WaitNotifyObject waiting = new WaitNotifyObject();

    @Override
    public void init(DefaultMessageStore store) {
        // Nothing to connect.
    }

    @Override
    public void start() {
        // Nothing to listen for.
    }

    @Override
    public void shutdown() {
        // Nothing was started.
    }

    @Override
    public void updateMasterAddress(String address) {
        // This store is the only one.
    }

    @Override
    public void updateHaMasterAddress(String address) {
        // This store is the only one.
    }

    @Override
    public int inSyncReplicasNums(long masterOffset) {
        return 1;
    }

    @Override
    public AtomicInteger getConnectionCount() {
        return connections;
    }

    @Override
    public void putRequest(CommitLog.GroupCommitRequest request) {
        throw new UnsupportedOperationException("no replica can confirm " + request.getNextOffset());
    }

    @Override
    public void putGroupConnectionStateRequest(HAConnectionStateNotificationRequest request) {
        throw new UnsupportedOperationException("no replica can connect");
    }

    @Override
    public List<HAConnection> getConnectionList() {
        return List.of();
    }

    @Override
    public HAClient getHAClient() {
        return null;
    }

    @Override
    public AtomicLong getPush2SlaveMaxOffset() {
        return pushed;
    }

    @Override
    public HARuntimeInfo getRuntimeInfo(long masterOffset) {
        HARuntimeInfo info = new HARuntimeInfo();
        info.setMaster(true);
        info.setMasterCommitLogMaxOffset(masterOffset);
        return info;
    }

    @Override
    public WaitNotifyObject getWaitNotifyObject() {
        return waiting;
    }

    @Override
    public boolean isSlaveOK(long masterOffset) {
        return true;
    }
}
